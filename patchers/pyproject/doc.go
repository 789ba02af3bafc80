// Package pyproject finds pytest settings that do not show setup and teardown,
// and test modules that pytest cannot run.
//
// Only tests that use torch.distributed or DeepSpeed matter: files named
// test_*.py, *_test.py or conftest.py that name one of them. The settings that
// rule them are found as pytest does: in the test's folder, then upward, the
// first of pytest.toml, .pytest.toml, pytest.ini, .pytest.ini, pyproject.toml,
// tox.ini and setup.cfg that counts. What stands above the top of the tree is not
// looked at. A file that is not among those to look at is not judged.
//
// Edits are decided by meaning and made in bytes. A file is decoded before and
// after; the two must be equal but for the setting, and addopts must be split
// into the old options and the new one. Otherwise the file is left alone and the
// finding says why. Nothing is reprinted.
//
// # pytest/setup-show
//
// The option --setup-show makes pytest print each fixture as it is set up and
// torn down, and with them setup_module and teardown_module: the log then tells
// whether the process group was torn down, and when. It repairs nothing itself.
//
// The repair adds the option to addopts in the file that rules, in the style
// that it finds there:
//
//	[tool.pytest.ini_options]
//	addopts = "--setup-show"
//
// Where no file rules any of these tests, the settings go to the pyproject.toml at
// the top of the tree. If there is none, pytest.ini is made: a new pyproject.toml
// would switch pip to isolated builds, in which setup.py cannot import PyTorch.
// Options that imply --setup-show (--setup-only, --setup-plan) count as present.
//
// # pytest/shadowed
//
// The file pyproject.toml has settings of pytest, but another file in the same
// folder comes first, such as an empty pytest.ini. Pytest takes all settings from
// that one and does not read these. Reported only: which of the two was meant
// cannot be told.
//
// # pytest/unparsable
//
// A pyproject.toml is not valid TOML, or the file in which pytest would look for
// the settings of distributed tests is not what its name says. Pytest stops at
// such a file. It is left alone.
//
// # pytest/uncallable
//
// A test module of distributed tests has functions whose names begin with "test",
// and whose parameters are no fixtures; the module itself calls them. It is a
// script. Pytest collects these functions and reports an error for each:
// "fixture 'local_rank' not found". Run the file with python or torchrun, or give
// the functions names that pytest does not collect. Reported only.
//
// # pytest/minversion
//
// The setting minversion, by which pytest refuses to run if it is too old, is
// absent or below 7.3.1. The repair sets it. Only asked for by name, since it
// stops those who have an older pytest.
package pyproject
