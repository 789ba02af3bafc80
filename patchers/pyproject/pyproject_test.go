package pyproject

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
)

// A row is a configuration file before and after. An empty after says that the
// file is left as it is.
type row struct {
	name          string
	file          string
	before, after string
	want          string // of the finding's message; "" if there is no finding
}

// fixed is what the message of a finding with a fix says.
const fixed = "addopts lacks --setup-show: pytest does not show setup and teardown"

func rows() []row {
	toml := func(name, before, after string) row { return row{name, "pyproject.toml", before, after, fixed} }
	ini := func(name, before, after string) row { return row{name, "tox.ini", before, after, fixed} }
	left := func(name, file, before, why string) row {
		return row{name, file, before, "", fixed + "; left alone: " + why}
	}
	silent := func(name, file, before string) row { return row{name: name, file: file, before: before} }
	return []row{
		// No table.
		toml("empty file", "", "[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("blank line only", "\n", "[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("no table", "[tool.yapf]\ncolumn_limit = 120\n",
			"[tool.yapf]\ncolumn_limit = 120\n\n[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("no table, no final newline", "[tool.ruff.lint]\nexclude = [\n    \"a\"\n]",
			"[tool.ruff.lint]\nexclude = [\n    \"a\"\n]\n\n[tool.pytest.ini_options]\naddopts = \"--setup-show\""),
		toml("no table, blank lines at the end", "[a]\n\n\n", "[a]\n\n\n[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("no table, space at the end", "[a]\n  ", "[a]\n  \n[tool.pytest.ini_options]\naddopts = \"--setup-show\""),
		toml("no table, CRLF", "[a]\r\nb = 1\r\n", "[a]\r\nb = 1\r\n\r\n[tool.pytest.ini_options]\r\naddopts = \"--setup-show\"\r\n"),
		toml("no table, CRLF, no final newline", "[a]\r\nb = 1", "[a]\r\nb = 1\r\n\r\n[tool.pytest.ini_options]\r\naddopts = \"--setup-show\""),
		toml("BOM", "\ufeff[a]\nb = 1\n", "\ufeff[a]\nb = 1\n\n[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("BOM only", "\ufeff", "\ufeff[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("comment at the end", "[a]\nb = 1 # c\n# end", "[a]\nb = 1 # c\n# end\n\n[tool.pytest.ini_options]\naddopts = \"--setup-show\""),
		toml("array of tables last", "[[tool.uv.index]]\nname = \"x\"\n",
			"[[tool.uv.index]]\nname = \"x\"\n\n[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("dotted keys of tool", "tool.ruff.line-length = 100\n",
			"tool.ruff.line-length = 100\n\n[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("empty tool.pytest", "[tool.pytest]\n", "[tool.pytest]\n\n[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("inline tool without pytest", "tool = {ruff = {x = 1}}\n",
			"tool = {ruff = {x = 1}, pytest.ini_options.addopts = \"--setup-show\"}\n"),
		toml("empty inline tool", "tool = {}\n", "tool = { pytest.ini_options.addopts = \"--setup-show\" }\n"),

		// A table without addopts.
		toml("empty table", "[tool.pytest.ini_options]\n", "[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("empty table, no final newline", "[tool.pytest.ini_options]", "[tool.pytest.ini_options]\naddopts = \"--setup-show\""),
		toml("empty table in front of another", "[tool.pytest.ini_options] # c\n\n# about a\n[a]\n",
			"[tool.pytest.ini_options] # c\naddopts = \"--setup-show\"\n\n# about a\n[a]\n"),
		toml("table without addopts", "[tool.pytest.ini_options]\nminversion = \"7\" # old\n\n# about a\n[a]\n",
			"[tool.pytest.ini_options]\nminversion = \"7\" # old\naddopts = \"--setup-show\"\n\n# about a\n[a]\n"),
		toml("indented table", "[tool]\n  [tool.pytest.ini_options]\n    minversion = \"7\"\n  [tool.x]\n",
			"[tool]\n  [tool.pytest.ini_options]\n    minversion = \"7\"\n    addopts = \"--setup-show\"\n  [tool.x]\n"),
		toml("list is last", "[tool.pytest.ini_options]\nmarkers = [\n  \"a: b\",\n]\n",
			"[tool.pytest.ini_options]\nmarkers = [\n  \"a: b\",\n]\naddopts = \"--setup-show\"\n"),
		toml("quoted header", "[ tool . \"pytest\".'ini_options' ]\r\nminversion = \"7\"\r\n",
			"[ tool . \"pytest\".'ini_options' ]\r\nminversion = \"7\"\r\naddopts = \"--setup-show\"\r\n"),
		toml("table with a table below", "[tool.pytest.ini_options.x]\ny = 1\n",
			"[tool.pytest.ini_options.x]\ny = 1\n\n[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		toml("dotted keys from the root", "tool.pytest.ini_options.minversion = \"7\"\n[a]\n",
			"tool.pytest.ini_options.minversion = \"7\"\ntool.pytest.ini_options.addopts = \"--setup-show\"\n[a]\n"),
		toml("dotted keys in tool", "[tool]\n\"pytest\" . ini_options.minversion = \"7\"\n[a]\n",
			"[tool]\n\"pytest\" . ini_options.minversion = \"7\"\n\"pytest\" . ini_options.addopts = \"--setup-show\"\n[a]\n"),
		toml("dotted keys in tool.pytest", "[tool.pytest]\nini_options.minversion = \"7\"",
			"[tool.pytest]\nini_options.minversion = \"7\"\nini_options.addopts = \"--setup-show\""),
		toml("inline tables", "[tool]\npytest = {ini_options = {minversion = \"7\"}}\n",
			"[tool]\npytest = {ini_options = {minversion = \"7\", addopts = \"--setup-show\"}}\n"),
		toml("inline table of dotted keys", "[tool]\npytest = { ini_options.minversion = \"7\" }\n",
			"[tool]\npytest = { ini_options.minversion = \"7\", ini_options.addopts = \"--setup-show\" }\n"),
		toml("empty inline table", "[tool.pytest]\nini_options = { }\n", "[tool.pytest]\nini_options = { addopts = \"--setup-show\" }\n"),
		toml("empty inline table around", "[tool]\npytest = {} # c\n", "[tool]\npytest = { ini_options.addopts = \"--setup-show\" } # c\n"),

		// Strings.
		toml("basic string", "[tool.pytest.ini_options]\naddopts = \"-ra\" # c\n",
			"[tool.pytest.ini_options]\naddopts = \"-ra --setup-show\" # c\n"),
		toml("empty string", "[tool.pytest.ini_options]\naddopts=\"\"\n", "[tool.pytest.ini_options]\naddopts=\"--setup-show\"\n"),
		toml("space at the end of the string", "[tool.pytest.ini_options]\naddopts = \"-ra \"\n",
			"[tool.pytest.ini_options]\naddopts = \"-ra --setup-show\"\n"),
		toml("escapes and quotes", `[tool.pytest.ini_options]`+"\n"+`addopts = "-m \"a and b\" -k 'c # d'"`+"\n",
			`[tool.pytest.ini_options]`+"\n"+`addopts = "-m \"a and b\" -k 'c # d' --setup-show"`+"\n"),
		toml("literal string", "[tool.pytest.ini_options]\naddopts = '-m \"a\\b\"'\n",
			"[tool.pytest.ini_options]\naddopts = '-m \"a\\b\" --setup-show'\n"),
		toml("multi-line string", "[tool.pytest.ini_options]\naddopts = \"\"\"\n    -ra\n    -q\n\"\"\"\n",
			"[tool.pytest.ini_options]\naddopts = \"\"\"\n    -ra\n    -q\n    --setup-show\n\"\"\"\n"),
		toml("multi-line string, CRLF", "[tool.pytest.ini_options]\r\naddopts = \"\"\"\r\n\t-ra\r\n\"\"\"\r\n",
			"[tool.pytest.ini_options]\r\naddopts = \"\"\"\r\n\t-ra\r\n\t--setup-show\r\n\"\"\"\r\n"),
		toml("multi-line string on one line", "[tool.pytest.ini_options]\naddopts = \"\"\"-ra\"\"\"\n",
			"[tool.pytest.ini_options]\naddopts = \"\"\"-ra --setup-show\"\"\"\n"),
		toml("multi-line string, closed behind text", "[tool.pytest.ini_options]\naddopts = \"\"\"-ra\n  -q\"\"\"\n",
			"[tool.pytest.ini_options]\naddopts = \"\"\"-ra\n  -q --setup-show\"\"\"\n"),
		toml("multi-line string without text", "[tool.pytest.ini_options]\naddopts = \"\"\"\n\"\"\"\n",
			"[tool.pytest.ini_options]\naddopts = \"\"\"\n--setup-show\"\"\"\n"),
		toml("quotes in front of the closing ones", "[tool.pytest.ini_options]\naddopts = \"\"\"-k \"a\"\"\"\"\n",
			"[tool.pytest.ini_options]\naddopts = \"\"\"-k \"a\" --setup-show\"\"\"\n"),
		toml("joined lines", "[tool.pytest.ini_options]\naddopts = \"\"\"\\\n    -ra \\\n    -q \\\n    \"\"\"\n",
			"[tool.pytest.ini_options]\naddopts = \"\"\"\\\n    -ra \\\n    -q \\\n    --setup-show \\\n    \"\"\"\n"),
		toml("joined lines without space", "[tool.pytest.ini_options]\naddopts = \"\"\"\n-q\\\n\"\"\"\n",
			"[tool.pytest.ini_options]\naddopts = \"\"\"\n--setup-show -q\\\n\"\"\"\n"),
		toml("multi-line literal string", "[tool.pytest.ini_options]\naddopts = '''\n  -ra\n  -k 'a b'\n  '''\n",
			"[tool.pytest.ini_options]\naddopts = '''\n  -ra\n  -k 'a b'\n  --setup-show\n  '''\n"),
		toml("end of options", "[tool.pytest.ini_options]\naddopts = \"-ra -- tests\"\n",
			"[tool.pytest.ini_options]\naddopts = \"--setup-show -ra -- tests\"\n"),
		toml("the option as a path", "[tool.pytest.ini_options]\naddopts = \"-- --setup-show\"\n",
			"[tool.pytest.ini_options]\naddopts = \"--setup-show -- --setup-show\"\n"),
		toml("a longer option", "[tool.pytest.ini_options]\naddopts = \"--setup-show-x\"\n",
			"[tool.pytest.ini_options]\naddopts = \"--setup-show-x --setup-show\"\n"),
		toml("quoted key", "[tool.pytest.ini_options]\n\"add\\u006fpts\" = \"-q\"\n",
			"[tool.pytest.ini_options]\n\"add\\u006fpts\" = \"-q --setup-show\"\n"),
		toml("dotted key", "tool.pytest.ini_options.addopts = \"-q\"\n", "tool.pytest.ini_options.addopts = \"-q --setup-show\"\n"),
		toml("inline table with addopts", "[tool]\npytest = {ini_options = {addopts = \"-q\", minversion = \"7\"}}\n",
			"[tool]\npytest = {ini_options = {addopts = \"-q --setup-show\", minversion = \"7\"}}\n"),
		toml("other tables have addopts, too", "[a]\naddopts = \"-x\"\n[[tool.b]]\naddopts = \"-x\"\n[tool.pytest.ini_options]\naddopts = \"-q\"\n[c]\naddopts = \"-x\"\n",
			"[a]\naddopts = \"-x\"\n[[tool.b]]\naddopts = \"-x\"\n[tool.pytest.ini_options]\naddopts = \"-q --setup-show\"\n[c]\naddopts = \"-x\"\n"),

		// Arrays.
		toml("array", "[tool.pytest.ini_options]\naddopts = [\"-ra\", \"-q\"]\n",
			"[tool.pytest.ini_options]\naddopts = [\"-ra\", \"-q\", \"--setup-show\"]\n"),
		toml("empty array", "[tool.pytest.ini_options]\naddopts = []\n", "[tool.pytest.ini_options]\naddopts = [\"--setup-show\"]\n"),
		toml("empty array with a comment", "[tool.pytest.ini_options]\naddopts = [ # none\n]\n",
			"[tool.pytest.ini_options]\naddopts = [\"--setup-show\" # none\n]\n"),
		toml("array with a trailing comma", "[tool.pytest.ini_options]\naddopts = ['-ra',]\n",
			"[tool.pytest.ini_options]\naddopts = ['-ra', '--setup-show',]\n"),
		toml("array over lines", "[tool.pytest.ini_options]\naddopts = [\n    \"-ra\",\n    \"-q\" # quiet\n]\n",
			"[tool.pytest.ini_options]\naddopts = [\n    \"-ra\",\n    \"-q\", # quiet\n    \"--setup-show\"\n]\n"),
		toml("array over lines, no comment", "[tool.pytest.ini_options]\naddopts = [\n\t\"-q\"\n]\n",
			"[tool.pytest.ini_options]\naddopts = [\n\t\"-q\",\n\t\"--setup-show\"\n]\n"),
		toml("array over lines with a trailing comma", "[tool.pytest.ini_options]\r\naddopts = [\r\n  '-ra', # a, b ]\r\n  # end\r\n]\r\n",
			"[tool.pytest.ini_options]\r\naddopts = [\r\n  '-ra', # a, b ]\r\n  '--setup-show',\r\n  # end\r\n]\r\n"),
		toml("array with several items in the last line", "[tool.pytest.ini_options]\naddopts = [\n  \"-ra\", \"-q\",\n]\n",
			"[tool.pytest.ini_options]\naddopts = [\n  \"-ra\", \"-q\", \"--setup-show\",\n]\n"),
		toml("array closed behind its last item", "[tool.pytest.ini_options]\naddopts = [\"-ra\",\n           \"-q\"]\n",
			"[tool.pytest.ini_options]\naddopts = [\"-ra\",\n           \"-q\", \"--setup-show\"]\n"),
		toml("array with brackets in strings", "[tool.pytest.ini_options]\naddopts = [\"-k\", \"a] or #\", '''b''']\n",
			"[tool.pytest.ini_options]\naddopts = [\"-k\", \"a] or #\", '''b''', \"--setup-show\"]\n"),
		toml("array with the end of options", "[tool.pytest.ini_options]\naddopts = [\"--\", \"tests\"]\n",
			"[tool.pytest.ini_options]\naddopts = [\"--setup-show\", \"--\", \"tests\"]\n"),

		// The native tables of pytest 9.
		toml("native table", "[tool.pytest]\nminversion = \"9.0\"\n", "[tool.pytest]\nminversion = \"9.0\"\naddopts = [\"--setup-show\"]\n"),
		toml("native list", "[tool.pytest]\naddopts = [\"-ra\"]\n", "[tool.pytest]\naddopts = [\"-ra\", \"--setup-show\"]\n"),
		{"pytest.toml", "pytest.toml", "[pytest]\naddopts = [\"-ra\"]\n", "[pytest]\naddopts = [\"-ra\", \"--setup-show\"]\n", fixed},
		{"empty .pytest.toml", ".pytest.toml", "", "[pytest]\naddopts = [\"--setup-show\"]\n", fixed},
		left("native string", "pyproject.toml", "[tool.pytest]\naddopts = \"-ra\"\n", "pytest wants a list of strings here"),
		left("both tables", "pyproject.toml", "[tool.pytest]\nminversion = \"9\"\n[tool.pytest.ini_options]\naddopts = \"-q\"\n",
			"it has both [tool.pytest] and [tool.pytest.ini_options], which pytest 9 refuses"),

		// There already.
		silent("there", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = \"--setup-show\"\n"),
		silent("there in a longer string", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = \"-ra '--setup-show' -q\"\n"),
		silent("there in an array", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = [\n  \"-ra\",\n  \"--setup-show\",\n]\n"),
		silent("other spelling", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = \"--setupshow\"\n"),
		silent("implied", "pytest.ini", "[pytest]\naddopts = --setup-plan\n"),
		silent("there in tox.ini", "tox.ini", "[pytest]\naddopts =\n  -ra\n  --setup-show\n"),
		silent("suppressed", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = \"-ra\" # ncclfix: ignore[pytest/setup-show]\n"),
		silent("suppressed above", "tox.ini", "[pytest]\n# ncclfix: ignore\naddopts = -ra\n"),

		// Left alone.
		left("plugin off", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = \"-p no:setuponly --setup-show\"\n",
			"it switches off pytest's plugin setuponly"),
		left("open quote", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = \"-k 'a\"\n", "no closing quotation"),
		left("number", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = 3\n", "neither a string nor a list of strings"),
		left("numbers", "pyproject.toml", "[tool.pytest.ini_options]\naddopts = [3]\n", "not all items are strings"),
		left("array of tables", "pyproject.toml", "[[tool.pytest]]\n", "pytest is no table"),
		left("no table at all", "pyproject.toml", "[tool]\npytest = 1\n", "pytest is no table"),
		left("form feed", "pytest.ini", "[pytest]\nmarkers =\n  a\fb\n", "it has line breaks that parsers do not agree on"),

		// INI files.
		ini("one line", "[tox]\nenvlist = py\n[pytest]\naddopts = -ra\n[x]\n", "[tox]\nenvlist = py\n[pytest]\naddopts = -ra --setup-show\n[x]\n"),
		ini("no space", "[pytest]\naddopts=-ra", "[pytest]\naddopts=-ra --setup-show"),
		ini("colon", "[pytest]\naddopts: -m \"a and b\"   \n", "[pytest]\naddopts: -m \"a and b\" --setup-show   \n"),
		ini("colon in front of an equals sign", "[pytest]\naddopts : -k a=b\n", "[pytest]\naddopts : -k a=b --setup-show\n"),
		ini("continued", "[pytest]\naddopts =\n    -ra\n    -q\nmarkers = a\n", "[pytest]\naddopts =\n    -ra\n    -q\n    --setup-show\nmarkers = a\n"),
		ini("continued from the first line", "[pytest]\r\naddopts = -ra\r\n\t-q\r\n\r\n[x]\r\n", "[pytest]\r\naddopts = -ra\r\n\t-q\r\n\t--setup-show\r\n\r\n[x]\r\n"),
		ini("continued, no final newline", "[pytest]\naddopts =\n  -q", "[pytest]\naddopts =\n  -q\n  --setup-show"),
		ini("comments between", "[pytest]\naddopts =\n  -ra\n  # quiet\n  -q\n# end\n; end\nmarkers = a\n",
			"[pytest]\naddopts =\n  -ra\n  # quiet\n  -q\n  --setup-show\n# end\n; end\nmarkers = a\n"),
		ini("quote over lines", "[pytest]\naddopts = -k \"a\n  or b\"\n", "[pytest]\naddopts = -k \"a\n  or b\"\n  --setup-show\n"),
		ini("end of options in an INI file", "[pytest]\naddopts =\n  -ra\n  -- tests\n", "[pytest]\naddopts =\n  --setup-show -ra\n  -- tests\n"),
		ini("empty value", "[pytest]\naddopts =  \nmarkers = a\n", "[pytest]\naddopts = --setup-show  \nmarkers = a\n"),
		ini("section without addopts", "[pytest] ; c\nmarkers =\n  a: b\n\n# about x\n[x]\naddopts = -q\n",
			"[pytest] ; c\naddopts = --setup-show\nmarkers =\n  a: b\n\n# about x\n[x]\naddopts = -q\n"),
		ini("empty section", "[pytest]\n\n[x]\n", "[pytest]\naddopts = --setup-show\n\n[x]\n"),
		ini("BOM in an INI file", "\ufeff[pytest]\naddopts = -q\n", "\ufeff[pytest]\naddopts = -q --setup-show\n"),
		{"setup.cfg", "setup.cfg", "[metadata]\nname = x\n\n[tool:pytest]\naddopts = -q\n", "[metadata]\nname = x\n\n[tool:pytest]\naddopts = -q --setup-show\n", fixed},
		{"empty pytest.ini", "pytest.ini", "", "[pytest]\naddopts = --setup-show\n", fixed},
		{"pytest.ini without a section", "pytest.ini", "# c\n", "# c\n\n[pytest]\naddopts = --setup-show\n", fixed},
		{"pytest.ini with other sections", "pytest.ini", "[x]\ny = 1", "[x]\ny = 1\n\n[pytest]\naddopts = --setup-show", fixed},
	}
}

// distributedTest is a test module for which the patcher cares.
const distributedTest = "import torch.distributed as dist\n\ndef test_a(fixture_a): pass\n"

// newTree makes a tree of the files, given as path and text in turn, and of a
// setup.py.
func newTree(files ...string) patchers.Tree {
	m := fstest.MapFS{"setup.py": {}}
	for i := 0; i < len(files); i += 2 {
		m[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	tree := patchers.Tree{FS: m}
	for name := range m {
		tree.Files = append(tree.Files, name)
	}
	slices.Sort(tree.Files)
	return tree
}

// analyze returns the findings of a tree that have the codes and are not
// suppressed.
func analyze(t testing.TB, tree patchers.Tree, codes ...string) []patchers.Finding {
	t.Helper()
	all, err := patchers.Analyze(context.Background(), tree, patchers.Options{}, []*patchers.Patcher{Patcher})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(f patchers.Finding) bool { return f.Suppressed || !slices.Contains(codes, f.Code) })
}

func plan(t testing.TB, tree patchers.Tree, findings []patchers.Finding) *patchers.ChangeSet {
	t.Helper()
	set, err := patchers.Plan(tree, []*patchers.Patcher{Patcher}, findings)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestSetupShow(t *testing.T) {
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			tree := newTree("tests/test_x.py", distributedTest, r.file, r.before)
			findings := analyze(t, tree, "pytest/setup-show")
			if r.want == "" {
				if len(findings) > 0 {
					t.Errorf("found %v", findings)
				}
				return
			}
			if len(findings) != 1 || findings[0].Message != r.want || findings[0].Pos.Path != r.file {
				t.Fatalf("findings %+v, want %q", findings, r.want)
			}
			set := plan(t, tree, findings)
			if r.after == "" {
				if len(set.Files) > 0 {
					t.Errorf("changed to %q", set.Files[0].New)
				}
				return
			}
			if len(set.Files) != 1 {
				t.Fatalf("%d changes; %+v", len(set.Files), set.Results)
			}
			if d := cmp.Diff(r.after, string(set.Files[0].New)); d != "" {
				t.Fatalf("-want +got:\n%s", d)
			}
			again := newTree("tests/test_x.py", distributedTest, r.file, r.after)
			if findings := analyze(t, again, "pytest/setup-show"); len(findings) > 0 {
				t.Errorf("the second run finds %v", findings)
			}
		})
	}
}

func TestPosition(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"pyproject.toml", "[a]\n\n  [tool.pytest.ini_options]\nx = 1\n", "pyproject.toml:3:3"},
		{"pyproject.toml", "\ufeff[tool.pytest.ini_options]\nx = 1\n  addopts = \"\"\n", "pyproject.toml:3:3"},
		{"pyproject.toml", "[tool]\nx = { }\npytest.ini_options = { x = 1 }", "pyproject.toml:3:1"},
		{"pyproject.toml", "[a]\n", "pyproject.toml"},
		{"tox.ini", "[x]\na = 1\n[pytest]\n", "tox.ini:3:1"},
		{"tox.ini", "[pytest]\na =\n b\naddopts = -x\n", "tox.ini:4:1"},
	} {
		got := analyze(t, newTree("test_x.py", distributedTest, c.file, c.text), "pytest/setup-show")
		if len(got) != 1 || got[0].Pos.String() != c.want {
			t.Errorf("%s %q: %v, want %s", c.file, c.text, got, c.want)
		}
	}
}

// TestRules says which file is judged, by what stands where.
func TestRules(t *testing.T) {
	const (
		test    = distributedTest
		options = "[tool.pytest.ini_options]\naddopts = \"-q\"\n"
		section = "[pytest]\naddopts = -q\n"
		cfg     = "[tool:pytest]\naddopts = -q\n"
	)
	shadowed := func(by string) string { return by + " outranks this file: pytest does not read these settings" }
	for _, c := range []struct {
		name  string
		files []string
		want  []string // position and message
	}{
		{"no tests", []string{"pyproject.toml", options}, nil},
		{"tests that are not distributed", []string{"test_x.py", "import torch\n", "pyproject.toml", options}, nil},
		{"distributed code that is no test", []string{"train.py", test, "pyproject.toml", options}, nil},
		{"nothing", []string{"a/test_x.py", test}, []string{"pytest.ini: " + fixed}},
		{"conftest", []string{"a/conftest.py", "from torch import distributed as dist\n"}, []string{"pytest.ini: " + fixed}},
		{"deepspeed", []string{"a/x_test.py", "import deepspeed\n"}, []string{"pytest.ini: " + fixed}},
		{"no section anywhere", []string{"a/test_x.py", test, "tox.ini", "[tox]\n", "setup.cfg", "[metadata]\n"}, []string{"pytest.ini: " + fixed}},
		{"pyproject.toml is there", []string{"a/test_x.py", test, "pyproject.toml", "[a]\n", "tox.ini", "[tox]\n"}, []string{"pyproject.toml: " + fixed}},
		{"tox.ini comes before an addition", []string{"test_x.py", test, "pyproject.toml", "[a]\n", "tox.ini", section}, []string{"tox.ini:2:1: " + fixed}},
		{"setup.cfg comes before an addition", []string{"test_x.py", test, "pyproject.toml", "[a]\n", "setup.cfg", cfg}, []string{"setup.cfg:2:1: " + fixed}},
		{"pyproject.toml comes before tox.ini", []string{"test_x.py", test, "pyproject.toml", options, "tox.ini", section, "setup.cfg", cfg}, []string{"pyproject.toml:2:1: " + fixed}},
		{"tox.ini comes before setup.cfg", []string{"test_x.py", test, "tox.ini", section, "setup.cfg", cfg}, []string{"tox.ini:2:1: " + fixed}},
		{"pytest.ini outranks", []string{"test_x.py", test, "pytest.ini", "", "pyproject.toml", options},
			[]string{"pyproject.toml:2:1: " + shadowed("pytest.ini"), "pytest.ini: " + fixed}},
		{".pytest.ini outranks", []string{"test_x.py", test, ".pytest.ini", "[pytest]\naddopts = --setup-show", "pyproject.toml", options},
			[]string{"pyproject.toml:2:1: " + shadowed(".pytest.ini")}},
		{"pytest.toml outranks", []string{"test_x.py", test, "pytest.toml", "", "pytest.ini", section, "pyproject.toml", options},
			[]string{"pyproject.toml:2:1: " + shadowed("pytest.toml"), "pytest.toml: " + fixed}},
		{"a plain pyproject.toml is not shadowed", []string{"test_x.py", test, "pytest.ini", "", "pyproject.toml", "[a]\n"}, []string{"pytest.ini: " + fixed}},
		{"the nearest rules", []string{"tests/unit/test_x.py", test, "tests/pytest.ini", section, "pyproject.toml", options}, []string{"tests/pytest.ini:2:1: " + fixed}},
		{"each rules its own", []string{"tests/test_x.py", test, "p/tests/test_x.py", test, "p/setup.cfg", cfg, "pyproject.toml", options, "q/test_x.py", "", "q/tox.ini", section},
			[]string{"p/setup.cfg:2:1: ", "pyproject.toml:2:1: " + fixed}},
		{"no new settings beside others", []string{"a/test_x.py", test, "tests/test_x.py", test, "tests/pytest.ini", section}, []string{"tests/pytest.ini:2:1: " + fixed}},
		{"a plain one below does not", []string{"p/tests/test_x.py", test, "p/pyproject.toml", "[a]\n", "pyproject.toml", "[a]\n"}, []string{"pyproject.toml: " + fixed}},
		{"invalid TOML", []string{"test_x.py", test, "pyproject.toml", "[a]\nb = \n"}, []string{"pyproject.toml:2:5: left alone: "}},
		{"invalid TOML without tests", []string{"pyproject.toml", "[a]\na = 1\na = 2"}, []string{"pyproject.toml:3:"}},
		{"invalid TOML that is outranked", []string{"test_x.py", test, "pytest.ini", section, "pyproject.toml", "="}, []string{"pyproject.toml:1:1: left alone: ", "pytest.ini:2:1: " + fixed}},
		{"not UTF-8", []string{"test_x.py", test, "pyproject.toml", "# \xff\n"}, []string{"pyproject.toml:1:3: left alone: not UTF-8"}},
		{"invalid INI file", []string{"test_x.py", test, "tox.ini", "[pytest]\naddopts = a\naddopts = b\n"}, []string{`tox.ini:3:1: left alone: duplicate name "addopts"`}},
		{"invalid INI file without tests", []string{"tox.ini", "x"}, nil},
		{"old section in setup.cfg", []string{"test_x.py", test, "setup.cfg", "[a]\n[pytest]\n"}, []string{"setup.cfg:2:1: left alone: pytest refuses"}},
		{"tests alone are named", []string{"-setup.py", "", "tests/test_x.py", test, "test_y.py", test}, nil},
		{"the settings are not named", []string{"-pyproject.toml", options, "test_x.py", test}, nil},
		{"the plain file is not named", []string{"-pyproject.toml", "[a]\n", "test_x.py", test}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var unlisted []string
			for i := 0; i < len(c.files); i += 2 {
				if name, ok := strings.CutPrefix(c.files[i], "-"); ok {
					c.files[i], unlisted = name, append(unlisted, name)
				}
			}
			tree := newTree(c.files...)
			tree.Files = slices.DeleteFunc(tree.Files, func(name string) bool { return slices.Contains(unlisted, name) })
			var got []string
			for _, f := range analyze(t, tree, "pytest/setup-show", "pytest/shadowed", "pytest/unparsable") {
				got = append(got, fmt.Sprintf("%s: %s", f.Pos, f.Message))
			}
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("-want +got:\n%s", cmp.Diff(c.want, got))
			}
		})
	}
}
