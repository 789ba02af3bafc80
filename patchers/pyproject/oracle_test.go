package pyproject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// python runs a program with Debian's Python, which has pytest. It gets input as
// JSON and answers in JSON.
func python(t *testing.T, module, program string, input, output any) {
	t.Helper()
	const interpreter = "/usr/bin/python3"
	if out, err := exec.Command(interpreter, "-c", "import "+module).CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s has no %s: %v\n%s", interpreter, module, err, out)
		}
		t.Skipf("%s has no %s", interpreter, module)
	}
	in, err := json.Marshal(input)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(interpreter, "-c", program)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Env = append(os.Environ(), "PYTEST_ADDOPTS=", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v\n%s", err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, output); err != nil {
		t.Fatalf("python: %v in %q", err, out)
	}
}

// TestSplit compares split with Python's shlex.split.
func TestSplit(t *testing.T) {
	lines := []string{
		"", " ", "-ra", " -ra  -q ", "a\tb\nc\r\nd", `-k "a b"`, `-k 'a b'`, `a"b"'c'd`, `""`, `'' ""`, `a "" b`,
		`a\ b`, `\`, `a\`, `"a\"b"`, `"a\b"`, `"a\\b"`, `'a\b'`, `'a\'`, `"a`, `'a`, `"a\`, "a\\\nb", "\"a\\\nb\"", "# a", "a#b",
		"é \u00a0x", "a;b|c", `\"`, `'"'"'"`, "-m\x0bx",
	}
	type answer struct {
		Args  []string
		Error string
	}
	var want []answer
	python(t, "shlex", `
import json, shlex, sys
def split(line):
    try:
        return {"Args": shlex.split(line)}
    except ValueError as e:
        return {"Error": str(e)}
print(json.dumps([split(line) for line in json.load(sys.stdin)]))
`, lines, &want)
	for i, line := range lines {
		got := answer{Args: []string{}}
		args, err := split(line)
		if err != nil {
			got = answer{Error: err.Error()}
		}
		got.Args = append(got.Args, args...)
		want[i].Error = strings.ToLower(want[i].Error)
		if d := cmp.Diff(want[i], got); d != "" {
			t.Errorf("%q (-shlex +split):\n%s", line, d)
		}
	}
}

// TestTomllib asks Python's own parser whether the edits changed only what they
// should: BurntSushi/toml, which the patcher asks, reads more than TOML 1.0.
func TestTomllib(t *testing.T) {
	var names []string
	var pairs [][2]string
	for _, r := range rows() {
		if strings.HasSuffix(r.file, ".toml") && r.after != "" {
			names = append(names, r.name)
			pairs = append(pairs, [2]string{strings.TrimPrefix(r.before, "\ufeff"), strings.TrimPrefix(r.after, "\ufeff")})
		}
	}
	var answers []string
	python(t, "tomllib", `
import json, sys, tomllib
def without(doc):
    for path in (["tool", "pytest", "ini_options"], ["tool", "pytest"], ["pytest"]):
        table = doc
        for key in path:
            table = table.get(key, {})
        table.pop("addopts", None)
    def prune(t):
        return {k: prune(v) if isinstance(v, dict) else v for k, v in t.items() if not (isinstance(v, dict) and not prune(v))}
    return prune(doc)
def compare(before, after):
    try:
        x, y = without(tomllib.loads(before)), without(tomllib.loads(after))
    except tomllib.TOMLDecodeError as e:
        return str(e)
    return "" if x == y else f"{x} != {y}"
print(json.dumps([compare(*pair) for pair in json.load(sys.stdin)]))
`, pairs, &answers)
	for i, a := range answers {
		if a != "" {
			t.Errorf("%s: %s", names[i], a)
		}
	}
}

// TestPytest asks pytest itself, for every row, whether the option is in force
// after the edit and was not before.
func TestPytest(t *testing.T) {
	// What Debian's pytest, version 7, does not take, before the edit or after.
	refused := []string{
		"BOM", "BOM only", "BOM in an INI file",
		"a longer option", // which does not exist
	}
	since9 := []string{"native table", "native list", "pytest.toml", "empty .pytest.toml"}
	type job struct{ Name, File, Before, After string }
	var jobs []job
	for _, r := range rows() {
		if r.after != "" && !slices.Contains(refused, r.name) && !slices.Contains(since9, r.name) {
			jobs = append(jobs, job{r.name, r.file, r.before, r.after})
		}
	}
	var answers [][2]string
	python(t, "pytest", fmt.Sprintf(`
import json, os, sys, pytest
os.chdir(%q)
class Ask:
    def pytest_configure(self, config):
        os.write(self.pipe, f"{config.inipath and config.inipath.name} {config.option.setupshow}".encode())
        os._exit(0)
def ask(name, text):
    with open(name, "w", newline="") as f:
        f.write(text)
    r, w = os.pipe()
    if os.fork() == 0:
        os.dup2(os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        Ask.pipe = w
        pytest.main(plugins=[Ask()])
        os._exit(1)
    os.close(w)
    os.wait()
    with open(r) as f:
        answer = f.read()
    os.remove(name)
    return answer or open("log").read()
print(json.dumps([[ask(j["File"], j["Before"]), ask(j["File"], j["After"])] for j in json.load(sys.stdin)]))
`, t.TempDir()), jobs, &answers)
	for i, j := range jobs {
		if _, shown, _ := strings.Cut(answers[i][0], " "); shown != "False" {
			t.Errorf("%s, before: %s", j.Name, answers[i][0])
		}
		if want := j.File + " True"; answers[i][1] != want {
			t.Errorf("%s: %s, want %s", j.Name, answers[i][1], want)
		}
	}
}

// TestPytestShows runs a test under settings that the patcher made.
func TestPytestShows(t *testing.T) {
	const test = `import pytest  # torch.distributed

@pytest.fixture(scope="module")
def group(): yield

def test_a(group): pass
`
	var version string
	python(t, "pytest", `import json, pytest; print(json.dumps(pytest.__version__))`, nil, &version)
	for _, files := range [][]string{nil, {"pyproject.toml", "[tool.x]"}, {"setup.cfg", "[tool:pytest]\naddopts = -q\n"}} {
		tree := newTree(append(files, "test_a.py", test)...)
		set := plan(t, tree, analyze(t, tree, "pytest/setup-show"))
		if len(set.Files) != 1 {
			t.Fatalf("%v: %d changes", files, len(set.Files))
		}
		dir := t.TempDir()
		for name, text := range map[string]string{"test_a.py": test, set.Files[0].Path: string(set.Files[0].New)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("SETUP    M group")) || !bytes.Contains(out, []byte("TEARDOWN M group")) {
			t.Errorf("%s: pytest %s: %v\n%s", set.Files[0].Path, version, err, out)
		}
	}
}
