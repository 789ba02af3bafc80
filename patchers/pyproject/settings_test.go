package pyproject

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
)

func TestMinversion(t *testing.T) {
	const unset = "minversion is not set"
	for _, c := range []struct{ file, before, after, want string }{
		{"pyproject.toml", "[tool.pytest.ini_options]\nminversion = \"6.0\"\n", "[tool.pytest.ini_options]\nminversion = \"7.3.1\"\n", "minversion is 6.0, below 7.3.1"},
		{"pyproject.toml", "[tool.pytest.ini_options]\nminversion = 7 # c\n", "[tool.pytest.ini_options]\nminversion = \"7.3.1\" # c\n", "minversion is 7, below 7.3.1"},
		{"pyproject.toml", "[tool.pytest.ini_options]\n", "[tool.pytest.ini_options]\nminversion = \"7.3.1\"\n", unset},
		{"pyproject.toml", "[tool.pytest]\nx = 1\n", "[tool.pytest]\nx = 1\nminversion = \"7.3.1\"\n", unset},
		{"pyproject.toml", "[tool.pytest.ini_options]\nminversion = \"7.3.1\"\n", "", ""},
		{"pyproject.toml", "[tool.pytest.ini_options]\nminversion = \"7.10\"\n", "", ""},
		{"pyproject.toml", "[tool.pytest.ini_options]\nminversion = \"8\"\n", "", ""},
		{"pyproject.toml", "[tool.pytest.ini_options]\nminversion = \"latest\"\n", "", `minversion is "latest"; left alone: not a version`},
		{"pyproject.toml", "[tool.pytest.ini_options]\nminversion.x = 1\n", "", `minversion is "map[x:1]"; left alone: not a version`},
		{"tox.ini", "[pytest]\nminversion: 7.3 \n", "[pytest]\nminversion: 7.3.1 \n", "minversion is 7.3, below 7.3.1"},
		{"tox.ini", "[pytest]\nminversion =\n  7.0\n", "[pytest]\nminversion =\n  7.3.1\n", "minversion is 7.0, below 7.3.1"},
		{"tox.ini", "[pytest]\n", "[pytest]\nminversion = 7.3.1\n", unset},
	} {
		tree := newTree("test_x.py", distributedTest, c.file, c.before)
		findings := analyze(t, tree, "pytest/minversion")
		if c.want == "" {
			if len(findings) > 0 {
				t.Errorf("%q: found %v", c.before, findings)
			}
			continue
		}
		if len(findings) != 1 || findings[0].Message != c.want {
			t.Errorf("%q: %v, want %q", c.before, findings, c.want)
			continue
		}
		got := ""
		if set := plan(t, tree, findings); len(set.Files) > 0 {
			got = string(set.Files[0].New)
		}
		if d := cmp.Diff(c.after, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.before, d)
		}
	}
}

// Repairs of both settings go together, or one of them waits for the next run.
func TestBothSettings(t *testing.T) {
	for _, c := range []struct{ file, before, after string }{
		{"pyproject.toml", "[a]", "[a]\n\n[tool.pytest.ini_options]\nminversion = \"7.3.1\"\naddopts = \"--setup-show\""},
		{"pyproject.toml", "[tool.pytest.ini_options]\n", "[tool.pytest.ini_options]\nminversion = \"7.3.1\"\naddopts = \"--setup-show\"\n"},
		{"pyproject.toml", "[tool.pytest.ini_options]\nminversion = \"6\"\n", "[tool.pytest.ini_options]\nminversion = \"7.3.1\"\naddopts = \"--setup-show\"\n"},
		{"pyproject.toml", "[tool]\npytest.ini_options = {addopts = \"-q\"}\n", "[tool]\npytest.ini_options = {addopts = \"-q --setup-show\", minversion = \"7.3.1\"}\n"},
		{"pyproject.toml", "[tool]\npytest.ini_options = {}\n", "[tool]\npytest.ini_options = { minversion = \"7.3.1\", addopts = \"--setup-show\" }\n"},
		{"setup.cfg", "[tool:pytest]\naddopts =\n  -q\n", "[tool:pytest]\nminversion = 7.3.1\naddopts =\n  -q\n  --setup-show\n"},
		{"README", "", "[pytest]\nminversion = 7.3.1\naddopts = --setup-show\n"},
	} {
		text, file := c.before, c.file
		for range 2 {
			tree := newTree("test_x.py", distributedTest, file, text)
			set := plan(t, tree, analyze(t, tree, "pytest/setup-show", "pytest/minversion"))
			if set.Count(patchers.Broken) > 0 {
				t.Errorf("%q: %+v", c.before, set.Results)
			}
			for _, f := range set.Files {
				file, text = f.Path, string(f.New)
			}
		}
		if d := cmp.Diff(c.after, text); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.before, d)
		}
	}
}

func TestUncallable(t *testing.T) {
	const head = "import torch.distributed as dist\nfrom utils import init_dist\n\n"
	for _, c := range []struct {
		name, src, conftest, want string
	}{
		{"script", head + "# noinspection\ndef test_main(args, rank: int, *rest, group=None, **more):\n    pass\n\ndef test_loop(local_rank, args):\n    test_main(args, local_rank)\n\n" +
			"if __name__ == '__main__':\n    torch.multiprocessing.spawn(test_loop, args=(2,))\n", "",
			"tests/test_x.py:5:1: pytest collects test_main, test_loop, but"},
		{"called with a fixture", head + "def test_a(tmp_path):\n    pass\n\ndef main():\n    test_a('.')\n", "", ""},
		{"not called", head + "def test_a(local_rank):\n    pass\n", "", ""},
		{"called by itself only", head + "def test_a(n):\n    test_a(n - 1)\n", "", ""},
		{"defaults", head + "def test_a(n=1):\n    pass\ntest_a()\n", "", ""},
		{"decorated", head + "@spawned\ndef test_a(rank):\n    pass\ntest_a(1)\n", "", ""},
		{"own fixture", head + "@pytest.fixture(scope='module')\n@other\ndef rank():\n    return 1\n\ndef test_a(rank):\n    pass\ntest_a(1)\n", "", ""},
		{"named fixture", head + "@pytest.fixture(name='rank')\ndef fixture_rank():\n    return 1\n\ndef test_a(rank):\n    pass\ntest_a(1)\n", "", ""},
		{"imported fixture", head + "from fixtures import rank\n\ndef test_a(rank):\n    pass\ntest_a(1)\n", "", ""},
		{"fixture of a conftest", head + "def test_a(rank):\n    pass\ntest_a(1)\n", "@pytest.fixture\ndef rank():\n    return 1\n", ""},
		{"conftest without it", head + "def test_a(rank):\n    pass\ntest_a(1)\n", "@pytest.fixture\ndef group():\n    return 1\n", "tests/test_x.py:4:1: pytest collects test_a, but"},
		{"generated", head + "def test_a(rank):\n    pass\ntest_a(1)\n", "def pytest_generate_tests(metafunc): pass\n", ""},
		{"suppressed", head + "# ncclfix: ignore[pytest]\ndef test_a(rank):\n    pass\ntest_a(1)\n", "", ""},
		{"not Python", head + "def test_a(rank):\n    pass\ntest_a(1\n", "", ""},
		{"not distributed", "def test_a(rank):\n    pass\ntest_a(1)\n", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			for _, f := range analyze(t, newTree("tests/test_x.py", c.src, "conftest.py", c.conftest), "pytest/uncallable") {
				got += f.Pos.String() + ": " + f.Message
			}
			if len(got) > len(c.want) && c.want != "" {
				got = got[:len(c.want)]
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	steps := analyze(t, newTree("test_x.py", head+"def test_a(rank: int, *rest, group=None, **more):\n    pass\ntest_a(1)\n"), "pytest/uncallable")[0].Why
	if want := "test_a wants rank"; len(steps) != 1 || steps[0].Message != want {
		t.Errorf("steps %+v, want %q", steps, want)
	}
}

// TestCheck gives the patcher's Check files that it must not let through.
func TestCheck(t *testing.T) {
	const old = "[tool.pytest.ini_options]\naddopts = \"-q\"\nx = 1\n"
	for _, c := range []struct{ name, file, old, new, want string }{
		{"fine", "pyproject.toml", old, "[tool.pytest.ini_options]\naddopts = \"-q --setup-show\"\nx = 1\n", ""},
		{"not TOML", "pyproject.toml", old, old + "x = 1\n", "4:7: Key 'tool.pytest.ini_options.x' has already been defined."},
		{"another setting", "pyproject.toml", old, "[tool.pytest.ini_options]\naddopts = \"-q --setup-show\"\nx = 2\n", "other settings would change"},
		{"another version", "pyproject.toml", old, old + "minversion = \"9\"\n", "other settings would change"},
		{"glued", "pyproject.toml", old, "[tool.pytest.ini_options]\naddopts = \"-q--setup-show\"\nx = 1\n", `the options of pytest would become ["-q--setup-show"]`},
		{"lost", "pyproject.toml", old, "[tool.pytest.ini_options]\naddopts = \"--setup-show\"\nx = 1\n", `the options of pytest would become ["--setup-show"]`},
		{"gone", "pyproject.toml", old, "[tool.pytest.ini_options]\nx = 1\n", "other settings would change"},
		{"behind the end of options", "tox.ini", "[pytest]\naddopts = -- a\n", "[pytest]\naddopts = -- a --setup-show\n", `the options of pytest would become ["--" "a" "--setup-show"]`},
		{"part of another setting", "tox.ini", "[pytest]\naddopts = -q\n", "[pytest]\naddopts = -q\nminversion = 7.3.1\n  --setup-show\n", "other settings would change"},
		{"another table", "pyproject.toml", "", "[tool.pytest]\naddopts = [\"--setup-show\"]\n", "pytest would read another table"},
	} {
		err := Patcher.Check(c.file, []byte(c.old), []byte(c.new))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if err := Patcher.Check("pytest.ini", nil, []byte("[pytest]\naddopts = --setup-show\n")); err != nil {
		t.Errorf("a new file: %v", err)
	}
}
