package setuppy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
)

// repair returns the finding about a setup.py, as position and message, and what
// the file becomes.
func repair(t testing.TB, src string) (finding, after string) {
	t.Helper()
	tree := patchers.Tree{FS: fstest.MapFS{"p/setup.py": {Data: []byte(src)}}, Files: []string{"p/setup.py"}}
	all := []*patchers.Patcher{Patcher}
	findings, err := patchers.Analyze(context.Background(), tree, patchers.Options{}, all)
	if err != nil {
		t.Fatal(err)
	}
	findings = slices.DeleteFunc(findings, func(f patchers.Finding) bool { return f.Suppressed })
	set, err := patchers.Plan(tree, all, findings)
	if err != nil {
		t.Fatal(err)
	}
	if n := set.Count(patchers.Broken); n > 0 {
		t.Fatalf("%q: %+v", src, set.Results)
	}
	for _, f := range findings {
		finding += f.Pos.String() + ": " + f.Message
	}
	if len(set.Files) > 0 {
		return finding, string(set.Files[0].New)
	}
	return finding, src
}

const found = "setup.py builds against any PyTorch: it does not look at the version"

// check1 is the check in the usual style.
const check1 = "\n\nif tuple(int(n) for n in torch.__version__.split('.')[:2]) < (2, 0):\n    raise RuntimeError(f'PyTorch 2.0 or later is needed, not {torch.__version__}')"

func TestRepair(t *testing.T) {
	for _, c := range []struct{ name, src, want, after string }{
		{"DeepEP's shape", "import os\nfrom pathlib import Path\nfrom torch.utils.cpp_extension import CUDAExtension\n\n\ndef f():\n    pass\n", "3:1: " + found,
			"import os\nfrom pathlib import Path\nfrom torch.utils.cpp_extension import CUDAExtension\nimport torch" + check1 + "\n\n\ndef f():\n    pass\n"},
		{"torch is there, other imports follow", "import torch\n# why\nfrom setuptools import (\n    setup,\n)  # c\nsetup()\nimport os\n", "1:1: " + found,
			"import torch\n# why\nfrom setuptools import (\n    setup,\n)  # c" + check1 + "\nsetup()\nimport os\n"},
		{"a part of torch binds it", "import torch.utils.cpp_extension", "1:1: " + found, "import torch.utils.cpp_extension" + check1},
		{"alias", "import torch as th, os\n", "1:1: " + found, "import torch as th, os" + strings.ReplaceAll(check1, "torch.", "th.") + "\n"},
		{"style", "import torch\r\nif True:\r\n\tx = \"a\"\r\n", "1:1: " + found,
			"import torch" + strings.NewReplacer("\n", "\r\n", "    ", "\t", "'", `"`).Replace(check1) + "\r\nif True:\r\n\tx = \"a\"\r\n"},
		{"BOM", "\ufeffimport torch\n", "1:1: " + found, "\ufeffimport torch" + check1 + "\n"},
		{"in try", "try:\n    import torch\nexcept ImportError:\n    torch = None\n", "2:5: " + found + "; left alone: the import is inside of another statement", ""},
		{"in main", "if __name__ == '__main__':\n    if True:\n        from torch.utils import cpp_extension\n", "3:9: " + found + "; left alone: the import is inside of another statement", ""},
		{"in one line", "import torch; setup(\n)\n", "1:1: " + found + "; left alone: another statement follows in the line", ""},
		{"no torch", "import os\nfrom torchvision import x\n# torch\n", "", ""},
		{"silenced", "import torch  # ncclfix: ignore[setuppy]\n", "", ""},
		{"not Python", "import torch\nsetup(\n", "", ""},
		{"looks", "import torch\nprint(torch.__version__)\n", "", ""},
		{"looks by alias", "import torch as th\nprint(th . __version__)\n", "", ""},
		{"another's version", "import torch, mine\nprint(mine.__version__)\n", "1:1: " + found, "import torch, mine" + check1 + "\nprint(mine.__version__)\n"},
		{"another's version, torch unnamed", "from torch.utils import x\nprint(mine.__version__)\n", "1:1: " + found,
			"from torch.utils import x\nimport torch" + check1 + "\nprint(mine.__version__)\n"},
		{"CUDA's version", "import torch\nprint(torch.version.cuda)\n", "1:1: " + found, "import torch" + check1 + "\nprint(torch.version.cuda)\n"},
		{"looks in torch.version", "import torch\nprint(torch.version.__version__)\n", "", ""},
		{"imports the version", "from torch import __version__ as v\n", "", ""},
		{"asks the metadata", "import torch\nversion('torch')\n", "", ""},
		{"requires a version", "import torch\nsetup(install_requires=['torch >= 2.1'])\n", "", ""},
		{"requires any version", "import torch\nsetup(install_requires=['torch'])\n", "1:1: " + found, "import torch" + check1 + "\nsetup(install_requires=['torch'])\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want != "" {
				c.want = "p/setup.py:" + c.want
			}
			if c.after == "" {
				c.after = c.src
			}
			got, after := repair(t, c.src)
			if got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
			if d := cmp.Diff(c.after, after); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if again, _ := repair(t, after); c.after != c.src && again != "" {
				t.Errorf("the second run finds %q", again)
			}
		})
	}
}

// TestVersions runs a repaired setup.py with a torch of several versions.
func TestVersions(t *testing.T) {
	const interpreter = "/usr/bin/python3"
	if _, err := os.Stat(interpreter); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	_, after := repair(t, "from torch.version import cuda\n\nprint('built')\n")
	for version, want := range map[string]string{
		"2.11.0+cu130":         "built",
		"2.0.1":                "built",
		"2.10.0a0+gitabc.d1.x": "built",
		"2.0.0rc1":             "built",
		"1.13.1+cpu":           "RuntimeError: PyTorch 2.0 or later is needed, not 1.13.1+cpu",
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{
			"setup.py": after, "torch/__init__.py": "__version__ = '" + version + "'\n", "torch/version.py": "cuda = ''\n",
		} {
			name = filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(interpreter, "-B", "setup.py")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if (err == nil) != (want == "built") || !strings.HasSuffix(strings.TrimSpace(string(out)), want) {
			t.Errorf("%s: %v\n%s", version, err, out)
		}
	}
}

// FuzzRepair gives any file to the patcher: what it changes must still be Python,
// have all its bytes, and need nothing more.
func FuzzRepair(f *testing.F) {
	for _, src := range []string{"import torch\n", "import torch as t; x = 1", "from torch import (\n a\n)\r\n", "if 1:\n\timport torch\n", "import torch \\\n  as t\n"} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		_, after := repair(t, src)
		if after == src {
			return
		}
		same := 0
		for same < len(src) && after[same] == src[same] {
			same++
		}
		if !strings.HasSuffix(after, src[same:]) {
			t.Fatalf("%q became %q", src, after)
		}
		if again, _ := repair(t, after); again != "" {
			t.Fatalf("%q became %q: %s", src, after, again)
		}
	})
}
