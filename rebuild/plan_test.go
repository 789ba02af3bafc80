package rebuild

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers/checkout"
	"ncclfix/patchers/gitpatch"
)

// codes returns the traps that are in the way.
func codes(p *Plan) []string {
	var codes []string
	for _, t := range p.Traps {
		if !t.Despite {
			codes = append(codes, t.Code)
		}
	}
	return codes
}

func stepNames(p *Plan) string { return strings.Join(p.stepNames(), " ") }

// What a checkout lacks is said, and what can be done is planned.
func TestMissingParts(t *testing.T) {
	skip := func(o *Options) { o.SkipNVSHMEM = true }
	tests := []struct {
		name    string
		remove  []string
		change  func(*Options)
		steps   string
		traps   []string
		partial bool
		says    []string
	}{
		{name: "nothing", steps: "patch configure build install"},
		{
			name: "no patch", remove: []string{"DeepEP/third-party/nvshmem.patch"},
			change: func(o *Options) { o.Env = append(o.Env, "NVSHMEM_SRC=") },
			steps:  "install", traps: []string{"source"},
			says: []string{"there is no third-party/nvshmem.patch (DeepEP dropped it in b306af0)", "keep the installed NVSHMEM with --skip-nvshmem"},
		},
		{
			name: "no patch, but a source", remove: []string{"DeepEP/third-party/nvshmem.patch"},
			change: func(o *Options) { o.Source = o.Checkout + "/../nvshmem_src" },
			steps:  "configure build install",
			says:   []string{"There is no third-party/nvshmem.patch, so NVSHMEM is built as it is."},
		},
		{
			name: "no install.sh", remove: []string{"DeepEP/install.sh"},
			steps: "patch configure build", partial: true,
			says: []string{"There is no install.sh in this checkout, and how else it is installed is not guessed."},
		},
		{
			name:   "no source",
			change: func(o *Options) { o.Env = append(o.Env, "NVSHMEM_SRC=") },
			steps:  "install", traps: []string{"source"},
			says: []string{"NVSHMEM's source was not found: neither --nvshmem-src nor NVSHMEM_SRC is set"},
		},
		{name: "no source, and none wanted", change: skip, steps: "install", says: []string{"NVSHMEM is left as it is installed."}},
		{name: "nothing at all to do", change: skip, remove: []string{"DeepEP/install.sh"}, partial: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.write("nvshmem_src/src/include/nvshmem.h", "")
			for _, path := range tt.remove {
				if err := os.Remove(filepath.Join(w.dir, path)); err != nil {
					t.Fatal(err)
				}
			}
			if tt.change == nil {
				tt.change = func(*Options) {}
			}
			p := w.plan(tt.change)
			if stepNames(p) != tt.steps || p.Partial != tt.partial {
				t.Errorf("steps %q, partial %v, want %q, %v", stepNames(p), p.Partial, tt.steps, tt.partial)
			}
			if d := cmp.Diff(tt.traps, codes(p)); d != "" {
				t.Errorf("traps (-want +got):\n%s", d)
			}
			for _, want := range tt.says {
				if !strings.Contains(p.Text(), want) {
					t.Errorf("the plan does not say %q:\n%s", want, p.Text())
				}
			}
		})
	}
}

// The installed NVSHMEM, if it is kept, is handed to install.sh.
func TestSkipNVSHMEM(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "NVSHMEM_DIR="+w.dir+"/kept")
	skip := func(o *Options) { o.SkipNVSHMEM = true }
	if got := codes(w.plan(skip)); !slices.Equal(got, []string{"nvshmem-dir"}) {
		t.Errorf("without the folder: %q", got)
	}
	w.write("kept/lib/libnvshmem_host.so", "")
	if got := codes(w.plan(skip)); !slices.Equal(got, []string{"nvshmem-dir"}) {
		t.Errorf("without headers: %q", got)
	}
	w.write("kept/include/nvshmem.h", "")
	p := w.plan(skip)
	if got := codes(p); got != nil {
		t.Errorf("traps %q", got)
	}
	w.calls()
	if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	calls := w.calls()
	if d := cmp.Diff([]string{"python setup.py", "pip install", "python -c"}, names(calls)); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	for _, v := range []string{"NVSHMEM_DIR=" + w.dir + "/kept", "LD_LIBRARY_PATH=" + w.dir + "/kept/lib:/opt/lib", "NVSHMEM_USE_NCCL=0"} {
		if !slices.Contains(calls[0].Env, v) {
			t.Errorf("environment %q lacks %s", calls[0].Env, v)
		}
	}
}

// The patch is for 3.2.5; the source is another.
func TestMisfit(t *testing.T) {
	w := newWorld(t)
	patch := w.read("DeepEP/third-party/nvshmem.patch")
	patch += "diff --git a/src/modules/transport/ibgda/ibgda.cpp b/src/modules/transport/ibgda/ibgda.cpp\nindex ef325cd..286132e 100644\n--- a/src/modules/transport/ibgda/ibgda.cpp\n+++ b/src/modules/transport/ibgda/ibgda.cpp\n@@ -1,2 +1,2 @@\n int a;\n-int b;\n+int c;\n"
	w.write("DeepEP/third-party/nvshmem.patch", patch)
	w.write("nvshmem_src/src/modules/transport/ibgda/ibgda.cpp", "int a;\nint B;\n")
	w.write("nvshmem_src/version.txt", "NVSHMEM_MAJOR := 3\nNVSHMEM_MINOR := 3\nNVSHMEM_PATCH := 9\n")
	p := w.plan()
	if p.Patch.Verdict != "does not apply" || !p.Blocked() {
		t.Fatalf("verdict %q", p.Patch.Verdict)
	}
	for _, want := range []string{
		"third-party/nvshmem.patch does not apply to NVSHMEM 3.3.9 in " + w.source,
		"applying commit 5", "src/modules/transport/ibgda/ibgda.cpp: hunk 1, line 1: it does not fit", `expected "int b;" at line 2, behind 1 line that fit`,
		"the patch was made for NVSHMEM 3.2.5",
	} {
		if !strings.Contains(p.Text(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, p.Text())
		}
	}
	w.env = append(w.env, "NVSHMEM_SRC=")
	if text := w.plan().Text(); !strings.Contains(text, "NVSHMEM's source, version 3.2.5,") {
		t.Errorf("without a source, the version that fits is not said:\n%s", text)
	}
	if _, err := NewPlan(context.Background(), Options{Checkout: w.checkout, Env: w.env, Despite: []string{"patch"}}); err == nil {
		t.Error("--despite patch is not refused")
	}
}

func TestPartlyPatched(t *testing.T) {
	w := newWorld(t)
	s, err := gitpatch.Parse([]byte(w.read("DeepEP/third-party/nvshmem.patch")))
	if err != nil {
		t.Fatal(err)
	}
	first := &gitpatch.Series{Commits: s.Commits[:2]}
	set, _, err := first.Apply(os.DirFS(w.source))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range set.Files {
		w.write("nvshmem_src/"+f.Path, string(f.New))
	}
	p := w.plan()
	if p.Patch.Verdict != "applied in part" || !strings.Contains(p.Text(), "commit 2: Add a receive queue to each lane (in the source already)") {
		t.Errorf("plan:\n%s", p.Text())
	}
	if want := "apply 3 commits of third-party/nvshmem.patch to 3 files"; p.Steps[0].Does != want {
		t.Errorf("does %q, want %q", p.Steps[0].Does, want)
	}
}

func TestBadInput(t *testing.T) {
	tests := []struct {
		name   string
		break_ func(*world, *Options)
		err    string
	}{
		{"no checkout", func(w *world, o *Options) { o.Checkout += "/none" }, "no such file"},
		{"patch", func(w *world, o *Options) { w.write("DeepEP/third-party/nvshmem.patch", "hello\n") }, "reading third-party/nvshmem.patch: patch line 2: no diff in it"},
		{"patch that leaves the tree", func(w *world, o *Options) {
			w.write("DeepEP/third-party/nvshmem.patch", "diff --git a/../x b/../x\nnew file mode 100644\n")
		}, "leads out of the tree"},
		{"source", func(w *world, o *Options) { o.Source = w.dir + "/none" }, "given by --nvshmem-src"},
		{"source of something else", func(w *world, o *Options) { o.Source = w.checkout }, "there is no CMakeLists.txt, no src/net/queue.c"},
		{"source from the environment", func(w *world, o *Options) { o.Env = append(o.Env, "NVSHMEM_SRC="+w.dir+"/none") }, "given by $NVSHMEM_SRC"},
		{"two sources", func(w *world, o *Options) {
			o.Env = append(o.Env, "NVSHMEM_SRC=")
			for _, name := range []string{"one", "two"} {
				if err := os.CopyFS(filepath.Join(w.checkout, "third-party", name), os.DirFS(w.source)); err != nil {
					w.t.Fatal(err)
				}
			}
		}, "say which with --nvshmem-src"},
		{"set", func(w *world, o *Options) { o.Set = []string{"NVSHMEM_IBGDA_SUPPORT"} }, `reading --set "NVSHMEM_IBGDA_SUPPORT": it is not NAME=VALUE`},
		{"set NCCL on", func(w *world, o *Options) { o.Set = []string{"NVSHMEM_USE_NCCL=1"} }, "refusing --set NVSHMEM_USE_NCCL=1"},
		{"set the folder", func(w *world, o *Options) { o.Set = []string{"NVSHMEM_DIR=/x"} }, "refusing --set NVSHMEM_DIR=/x"},
		{"no home", func(w *world, o *Options) { o.Env = []string{"PATH=/bin"} }, "finding a place for the state"},
		{"cmake that says nothing", func(w *world, o *Options) { w.write("cmake-version", "?") }, "reading the version of"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			o := Options{Checkout: w.checkout, Env: w.env}
			tt.break_(w, &o)
			_, err := NewPlan(context.Background(), o)
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
}

func TestFindSource(t *testing.T) {
	for _, place := range []string{"third-party/nvshmem_src", "third-party/nvshmem/nvshmem_src", "nvshmem_src"} {
		w := newWorld(t)
		w.env = append(w.env, "NVSHMEM_SRC=")
		want := filepath.Join(w.checkout, place)
		if err := os.CopyFS(want, os.DirFS(w.source)); err != nil {
			t.Fatal(err)
		}
		if s := w.plan().Source; s == nil || s.Dir != want || s.Version != (Version{3, 2, 5}) {
			t.Errorf("in %s: %+v", place, s)
		}
	}
	w := newWorld(t)
	if s := w.plan(func(o *Options) { o.Source = w.dir }).Source; s.Dir != w.source {
		t.Errorf("in the folder above: %+v", s)
	}
}

// A source in a git work tree, such as the checkout itself, is patched as a part
// of it, so that undo finds the write.
func TestSourceInWorkTree(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "NVSHMEM_SRC=")
	inside := filepath.Join(w.checkout, "third-party", "nvshmem_src")
	if err := os.CopyFS(inside, os.DirFS(w.source)); err != nil {
		t.Fatal(err)
	}
	w.write("DeepEP/.git/HEAD", "ref: refs/heads/main\n")
	pristine := w.tree("DeepEP/third-party")
	p := w.plan()
	if p.Patch.Root != w.checkout || !strings.Contains(p.Patch.Diff, "--- a/third-party/nvshmem_src/src/net/queue.c\n") {
		t.Errorf("root %s, diff\n%s", p.Patch.Root, p.Patch.Diff)
	}
	report, err := p.Run(context.Background(), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.plan().Patch.Verdict; got != "already applied" {
		t.Errorf("afterwards the patch is %s", got)
	}
	tree, err := checkout.Open(w.checkout)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if _, err := tree.Undo(context.Background(), report.Undo); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(pristine, w.tree("DeepEP/third-party")); d != "" {
		t.Errorf("after undo:\n%s", d)
	}
}

// Archives of both kinds are unpacked once, and found patched the next time.
func TestSourceArchive(t *testing.T) {
	for _, name := range []string{"nvshmem_src_3.2.5-1.txz", "nvshmem.tar.gz"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			flag := map[string]string{".txz": "-cJf", ".gz": "-czf"}[filepath.Ext(name)]
			if out, err := exec.Command("tar", "-C", w.dir, flag, filepath.Join(w.dir, name), "nvshmem_src").CombinedOutput(); err != nil {
				t.Fatalf("tar: %v\n%s", err, out)
			}
			given := func(o *Options) { o.Source = filepath.Join(w.dir, name) }
			p := w.plan(given)
			if p.Source.Archive != filepath.Join(w.dir, name) || !strings.HasPrefix(p.Source.Dir, p.State) || p.Patch.Verdict != "applies" {
				t.Fatalf("plan:\n%s", p.Text())
			}
			inside, err := filepath.Rel(w.dir, p.Source.Dir)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(w.tree("nvshmem_src"), w.tree(inside)); d != "" {
				t.Errorf("unpacked (-want +got):\n%s", d)
			}
			if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
				t.Fatal(err)
			}
			if again := w.plan(given); again.Source.Dir != p.Source.Dir || again.Patch.Verdict != "already applied" {
				t.Errorf("second plan:\n%s", again.Text())
			}
		})
	}
}

func TestVersionOf(t *testing.T) {
	tests := []struct {
		file, text string
		want       string
	}{
		{"version.txt", "8a6f4f1\nNVSHMEM_MAJOR := 3\nNVSHMEM_MINOR := 1\nNVSHMEM_PATCH := 7\nNVSHMEM_PACKAGE := 0\n", "3.1.7"},
		{"CMakeLists.txt", "project(\n  NVSHMEM\n  LANGUAGES CUDA CXX C\n  VERSION 3.2.5.1\n)\n", "3.2.5"},
		{"version.txt", "latest\n", "of unknown version"},
	}
	for _, tt := range tests {
		if got := versionOf(fstest.MapFS{tt.file: {Data: []byte(tt.text)}}).String(); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.text, got, tt.want)
		}
	}
}

func TestTraps(t *testing.T) {
	cuda := func(w *world, version string) {
		w.write("nvshmem_src/CMakeLists.txt", strings.Replace(w.read("nvshmem_src/CMakeLists.txt"), "LANGUAGES C", "LANGUAGES CUDA C", 1))
		w.write("DeepEP/third-party/nvshmem.patch", strings.ReplaceAll(w.read("DeepEP/third-party/nvshmem.patch"), "LANGUAGES C", "LANGUAGES CUDA C"))
		w.write("cuda/bin/nvcc", "")
		if err := os.Chmod(filepath.Join(w.dir, "cuda/bin/nvcc"), 0o755); err != nil {
			w.t.Fatal(err)
		}
		w.write("cuda/include/cuda.h", "/* CUDA */\n#define CUDA_VERSION "+version+"\n")
		w.env = append(w.env, "CUDA_HOME="+w.dir+"/cuda")
	}
	ibgda := func(w *world, text string) { w.write("nvshmem_src/"+ibgdaPath, text) }
	noGDRCopy := []string{"NVSHMEM_USE_GDRCOPY=0"}
	tests := []struct {
		name    string
		prepare func(*world)
		change  func(*Options)
		want    []string
	}{
		{name: "none"},
		{"old cmake", func(w *world) { w.write("cmake-version", "3.18.99") }, nil, []string{"cmake"}},
		{"cmake of the next decade", func(w *world) { w.write("cmake-version", "10.0.0") }, nil, nil},
		{"no cmake", func(w *world) { w.env = append(w.env, "PATH="+w.dir) }, nil, []string{"cmake"}},
		{"CUDA 13 with 3.2.5", func(w *world) { cuda(w, "13000") }, nil, []string{"cxx-standard"}},
		{"CUDA 13 with 3.2.5 as C++17", func(w *world) { cuda(w, "13000") }, func(o *Options) { o.CXXStandard = 17 }, nil},
		{"CUDA 13 with 3.2.5 as C++14", func(w *world) { cuda(w, "13000") }, func(o *Options) { o.CXXStandard = 14 }, []string{"cxx-standard"}},
		{"CUDA 12", func(w *world) { cuda(w, "12080") }, nil, nil},
		{"CUDA 13 with 3.3", func(w *world) {
			cuda(w, "13000")
			w.write("nvshmem_src/version.txt", "NVSHMEM_MAJOR := 3\nNVSHMEM_MINOR := 3\nNVSHMEM_PATCH := 0\n")
		}, nil, nil},
		{"no CUDA", func(w *world) {
			cuda(w, "12080")
			w.env = append(w.env, "CUDA_HOME="+w.dir+"/none")
		}, nil, []string{"cuda"}},
		{"IBGDA without GDRCopy", func(w *world) {
			ibgda(w, "#ifdef NVSHMEM_USE_GDRCOPY\nstatic int gdrcopy_ftable;\n#endif\nint f() { return gdrcopy_ftable; }\n")
		}, func(o *Options) { o.Set = noGDRCopy }, []string{"ibgda"}},
		{"neither IBGDA nor GDRCopy", func(w *world) {
			ibgda(w, "int f() { return gdrcopy_ftable; }\n")
		}, func(o *Options) { o.Set = append(noGDRCopy, "NVSHMEM_IBGDA_SUPPORT=0") }, nil},
		{"IBGDA that can do without GDRCopy", func(w *world) {
			ibgda(w, "#if defined(NVSHMEM_USE_GDRCOPY)\n#ifdef X\nint f() { return gdrcopy_ftable; }\n#endif\n#else\nint f() { return 0; } // no gdrcopy_ftable\n#endif\n")
		}, func(o *Options) { o.Set = noGDRCopy }, nil},
		{"GDRCopy only where it is off", func(w *world) {
			ibgda(w, "#ifndef NVSHMEM_USE_GDRCOPY\nint f() { return gdrcopy_ftable; }\n#endif\n")
		}, func(o *Options) { o.Set = noGDRCopy }, []string{"ibgda"}},
		{"disk", nil, func(o *Options) { o.Prefix = "/proc/nvshmem" }, []string{"disk"}}, // which has no room at all
		{"isolation", func(w *world) {
			w.write("DeepEP/setup.py", "import os\nfrom torch.utils.cpp_extension import BuildExtension\n")
			w.write("DeepEP/install.sh", "pip install --verbose .\n")
		}, nil, []string{"isolation"}},
		{"isolation by build", func(w *world) {
			w.write("DeepEP/setup.py", "import torch\n")
			w.write("DeepEP/install.sh", "python -m build --wheel\npip install dist/*.whl\n")
		}, nil, []string{"isolation"}},
		{"isolation switched off", func(w *world) {
			w.write("DeepEP/setup.py", "import torch\n")
			w.write("DeepEP/install.sh", "pip install --no-build-isolation .\n# pip install .\n")
		}, nil, nil},
		{"isolation switched off by a variable", func(w *world) {
			w.write("DeepEP/setup.py", "import torch\n")
			w.write("DeepEP/install.sh", "pip install .\n")
		}, func(o *Options) { o.Set = []string{"PIP_NO_BUILD_ISOLATION=0"} }, nil},
		{"isolation with torch", func(w *world) {
			w.write("DeepEP/setup.py", "import torch\n")
			w.write("DeepEP/pyproject.toml", "[build-system]\nrequires = [\"setuptools\", \"torch>=2\"]\n")
			w.write("DeepEP/install.sh", "pip install .\n")
		}, nil, nil},
		{"a wheel is not built", func(w *world) {
			w.write("DeepEP/setup.py", "import torch\n")
			w.write("DeepEP/install.sh", "python setup.py bdist_wheel\npip install ./dist/*.whl\n")
		}, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.prepare != nil {
				tt.prepare(w)
			}
			if tt.change == nil {
				tt.change = func(*Options) {}
			}
			p := w.plan(tt.change)
			if d := cmp.Diff(tt.want, codes(p)); d != "" {
				t.Errorf("traps (-want +got):\n%s\n%s", d, p.Text())
			}
			for _, trap := range p.Traps {
				if trap.Message == "" || trap.Way == "" {
					t.Errorf("trap %+v", trap)
				}
			}
			if len(tt.want) > 0 {
				again := w.plan(tt.change, func(o *Options) { o.Despite = tt.want })
				if again.Blocked() {
					t.Errorf("with --despite %q, %q are in the way", tt.want, codes(again))
				}
			}
		})
	}
}

func TestGDRCopyHeader(t *testing.T) {
	w := newWorld(t)
	text := w.read("nvshmem_src/CMakeLists.txt") + "find_path(GDRCOPY_INCLUDE gdrapi.h)\n"
	w.write("nvshmem_src/CMakeLists.txt", text)
	if got := codes(w.plan()); got != nil {
		t.Errorf("with GDRCOPY_HOME: %q", got)
	}
	if _, err := os.Stat("/usr/include/gdrapi.h"); err == nil {
		t.Skip("this system has GDRCopy")
	}
	w.env = append(w.env, "GDRCOPY_HOME=/none")
	if got := codes(w.plan()); !slices.Equal(got, []string{"gdrcopy"}) {
		t.Errorf("without gdrapi.h: %q", got)
	}
	if got := codes(w.plan(func(o *Options) { o.Set = []string{"NVSHMEM_USE_GDRCOPY=OFF"} })); got != nil {
		t.Errorf("without GDRCopy: %q", got)
	}
}

func TestInherit(t *testing.T) {
	env := []string{"B=2", "GITHUB_TOKEN=x", "AWS_ACCESS_KEY=x", "my_secret=x", "DB_PASSWORD_FILE=x", "A=1=1", "KEYBOARD=us", "TOKENS=3", "=x", "HF_TOKEN=x"}
	e := inherit(env, []string{"HF_TOKEN"})
	if d := cmp.Diff([]string{"AWS_ACCESS_KEY", "DB_PASSWORD_FILE", "GITHUB_TOKEN", "my_secret"}, e.withheld); d != "" {
		t.Errorf("withheld (-want +got):\n%s", d)
	}
	want := []string{"A=1=1", "HF_TOKEN=x", "KEYBOARD=us", "TOKENS=3", "B=9", "C=4"}
	if d := cmp.Diff(want, e.with([]Var{{"B", "9"}, {"C", "4"}})); d != "" {
		t.Errorf("handed on (-want +got):\n%s", d)
	}
}

// What is planned is in the JSON, and what is shown as text is all that is run.
func TestShow(t *testing.T) {
	w := newWorld(t)
	p := w.plan(func(o *Options) {
		o.CXXStandard, o.Prefix = 17, w.dir+"/with blank"
		o.CMakeArgs = []string{"-DCMAKE_CUDA_ARCHITECTURES=90", "-G", "Ninja"}
		o.Set = []string{"NVSHMEM_IBGDA_SUPPORT=0", "NEW=1"}
	})
	text := p.Text()
	for _, want := range []string{
		"checkout: " + w.checkout + "\n",
		"NVSHMEM: 3.2.5 in " + w.source + " ($NVSHMEM_SRC)\n",
		"patch: third-party/nvshmem.patch applies\n",
		"commit 5, hunk 1 of src/net/queue.c fits at line 6, 1 line further down\n",
		"step 1, patch: apply 5 commits of third-party/nvshmem.patch to 3 files\n",
		"    NVSHMEM_IBGDA_SUPPORT=0\n", "    NEW=1\n",
		"cmake -S " + w.source + " -B " + p.State + "/build '-DCMAKE_INSTALL_PREFIX=" + w.dir + "/with blank' -DCMAKE_PROJECT_INCLUDE=" + p.State + "/cxx-standard.cmake -DCMAKE_CUDA_ARCHITECTURES=90 -G Ninja\n",
		"cmake --build " + p.State + "/build --target install --parallel 3\n",
		"    bash -e install.sh\n",
		"CXX_STANDARD 17 CUDA_STANDARD 17",
		"handed on from the environment: GDRCOPY_HOME HOME LD_LIBRARY_PATH",
		"not handed on, without --keep-env: HF_TOKEN\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the plan does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "NVSHMEM_IBGDA_SUPPORT=1") {
		t.Error("an overridden switch is shown")
	}

	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Checkout string
		Source   struct{ Version string }
		Patch    struct {
			Verdict, Diff string
			Offsets       []struct{ Line, By int }
		}
		Steps []struct {
			Name string
			Argv []string
			Set  []Var
		}
		Inherited, Withheld []string
		Traps               []Trap
		Notes               []string
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Checkout != w.checkout || got.Source.Version != "3.2.5" || got.Patch.Verdict != "applies" || got.Patch.Offsets[0].By != 1 || len(got.Steps) != 4 ||
		!slices.Equal(got.Steps[1].Argv, p.Steps[1].Argv) || !slices.Contains(got.Steps[1].Set, Var{"NEW", "1"}) || got.Traps == nil || got.Notes == nil {
		t.Errorf("JSON %s", data)
	}

	// The diff is what git apply takes, and makes what the patch step writes.
	cmd := exec.Command("git", "apply", "-")
	cmd.Dir = w.source
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+w.dir)
	cmd.Stdin = strings.NewReader(got.Patch.Diff)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s", err, out)
	}
	if again := w.plan(); again.Patch.Verdict != "already applied" {
		t.Errorf("after git apply: %s", again.Patch.Verdict)
	}
}
