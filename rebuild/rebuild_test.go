package rebuild

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers/checkout"
)

// A world is a checkout, NVSHMEM's source and the programs that stand in for
// those a rebuild runs, in a folder of its own.
type world struct {
	t                     *testing.T
	dir, checkout, source string
	env                   []string
}

// installScript has the traits of the real one: it does not stop at errors, and
// its last command works whatever went before.
const installScript = `here=$(pwd)
cd "$(dirname "$0")"

rm -rf dist
python setup.py bdist_wheel
pip install dist/*.whl

cd "$here"
`

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", dir+"/state") // for the journal of checkout
	w := &world{t: t, dir: dir, checkout: filepath.Join(dir, "DeepEP"), source: filepath.Join(dir, "nvshmem_src")}
	patch, err := os.ReadFile("../patchers/gitpatch/testdata/mailbox/series.patch")
	if err != nil {
		t.Fatal(err)
	}
	w.write("DeepEP/third-party/nvshmem.patch", string(patch))
	w.write("DeepEP/install.sh", installScript)
	w.write("DeepEP/setup.py", "import setuptools\n")
	if err := os.CopyFS(w.source, os.DirFS("../patchers/gitpatch/testdata/mailbox/old")); err != nil {
		t.Fatal(err)
	}
	w.write("nvshmem_src/version.txt", "0123abcd\nNVSHMEM_MAJOR := 3\nNVSHMEM_MINOR := 2\nNVSHMEM_PATCH := 5\nNVSHMEM_PACKAGE := 1\n")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cmake", "python", "pip"} {
		w.write("bin/"+name, fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=0 exec '%s' standin '%s' %s \"$@\"\n", self, dir, name))
		if err := os.Chmod(filepath.Join(dir, "bin", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	w.env = []string{
		"PATH=" + dir + "/bin:/usr/bin:/bin", "HOME=" + dir, "XDG_STATE_HOME=" + dir + "/state",
		"LD_LIBRARY_PATH=/opt/lib", "NVSHMEM_IBGDA_SUPPORT=7", "HF_TOKEN=secret", "NVSHMEM_SRC=" + w.source,
		"GDRCOPY_HOME=" + dir,
	}
	w.write("include/gdrapi.h", "")
	return w
}

func (w *world) write(path, text string) {
	w.t.Helper()
	if err := write(filepath.Join(w.dir, path), text); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(path string) string {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, path))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

func (w *world) fault(name string) { w.write("fault", name) }

func (w *world) plan(change ...func(*Options)) *Plan {
	w.t.Helper()
	o := Options{Checkout: w.checkout, Env: w.env, Jobs: 3}
	for _, c := range change {
		c(&o)
	}
	p, err := NewPlan(context.Background(), o)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// calls returns the programs that were called since it was last asked. Of the
// probe's arguments, those that change from run to run are left out.
func (w *world) calls() []call {
	w.t.Helper()
	f, err := os.Open(filepath.Join(w.dir, "calls"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	var all []call
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var c call
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			w.t.Fatal(err)
		}
		if slices.Contains(c.Argv, probe) {
			c.Argv[2], c.Argv[3] = "PROBE", "OUT"
			if inside, err := filepath.Glob(filepath.Join(w.dir, "state/ncclfix/rebuild/*")); err != nil || !strings.HasPrefix(c.Dir, inside[0]) {
				w.t.Errorf("the probe ran in %s", c.Dir)
			}
			c.Dir = "AWAY"
		}
		all = append(all, c)
	}
	return all
}

// names returns the calls in short.
func names(calls []call) []string {
	var names []string
	for _, c := range calls {
		names = append(names, strings.Join(c.Argv[:min(2, len(c.Argv))], " "))
	}
	return names
}

// tree returns the files below a folder of the world.
func (w *world) tree(path string) map[string]string {
	w.t.Helper()
	files := map[string]string{}
	tree := os.DirFS(filepath.Join(w.dir, path))
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(tree, path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return files
}

// expected are the calls of a whole rebuild.
func (w *world) expected(p *Plan) []call {
	inherited := []string{
		"PATH=" + w.dir + "/bin:/usr/bin:/bin", "HOME=" + w.dir, "XDG_STATE_HOME=" + w.dir + "/state",
		"LD_LIBRARY_PATH=/opt/lib", "NVSHMEM_IBGDA_SUPPORT=7", "NVSHMEM_SRC=" + w.source, "GDRCOPY_HOME=" + w.dir,
	}
	env := func(set ...string) []string {
		all := slices.Clone(set)
		for _, v := range inherited {
			name, _, _ := strings.Cut(v, "=")
			if !slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") }) {
				all = append(all, v)
			}
		}
		slices.Sort(all)
		return all
	}
	prefix, build := p.State+"/nvshmem-3.2.5", p.State+"/build"
	nvshmem := env("NVSHMEM_SHMEM_SUPPORT=0", "NVSHMEM_UCX_SUPPORT=0", "NVSHMEM_USE_NCCL=0", "NVSHMEM_MPI_SUPPORT=0", "NVSHMEM_IBGDA_SUPPORT=1",
		"NVSHMEM_PMIX_SUPPORT=0", "NVSHMEM_TIMEOUT_DEVICE_POLLING=0", "NVSHMEM_USE_GDRCOPY=1", "NVSHMEM_BUILD_TESTS=0", "NVSHMEM_BUILD_EXAMPLES=0")
	install := env("NVSHMEM_DIR="+prefix, "NVSHMEM_USE_NCCL=0", "LD_LIBRARY_PATH="+prefix+"/lib:/opt/lib", "PATH="+prefix+"/bin:"+w.dir+"/bin:/usr/bin:/bin",
		"PIP_FORCE_REINSTALL=1", "PIP_NO_DEPS=1", "MAX_JOBS=3")
	return []call{
		{[]string{"cmake", "-S", w.source, "-B", build, "-DCMAKE_INSTALL_PREFIX=" + prefix}, w.source, nvshmem},
		{[]string{"cmake", "--build", build, "--target", "install", "--parallel", "3"}, w.source, nvshmem},
		{[]string{"python", "setup.py", "bdist_wheel"}, w.checkout, install},
		{[]string{"pip", "install", "dist/deep_ep-1.0-py3-none-any.whl"}, w.checkout, install},
		{[]string{"python", "-c", "PROBE", "OUT", "deep_ep", "deep_ep"}, "AWAY", install},
	}
}

func TestRebuild(t *testing.T) {
	w := newWorld(t)
	pristine := w.tree("nvshmem_src")
	p := w.plan()
	asked := w.calls()
	if d := cmp.Diff([]string{"cmake --version"}, names(asked)); d != "" {
		t.Errorf("calls while planning (-want +got):\n%s", d)
	}
	if p.Blocked() || p.Patch.Verdict != "applies" || p.Partial {
		t.Fatalf("plan:\n%s", p.Text())
	}
	if d := cmp.Diff(pristine, w.tree("nvshmem_src")); d != "" {
		t.Errorf("planning changed the source:\n%s", d)
	}

	var seen []Progress
	report, err := p.Run(context.Background(), RunOptions{Progress: func(p Progress) { seen = append(seen, p) }})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(w.expected(p), w.calls()); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	patched := w.tree("nvshmem_src")
	if !strings.Contains(patched["src/net/queue.h"], "struct queue recv;") {
		t.Errorf("the source is not patched: %q", patched["src/net/queue.h"])
	}
	if d := cmp.Diff([]string{w.checkout + "/dist/deep_ep-1.0-py3-none-any.whl"}, report.Wheels); d != "" || report.Interpreter != "/usr/bin/python" {
		t.Errorf("report %+v", report)
	}
	log, err := os.ReadFile(report.Log)
	if err != nil || !bytes.Contains(log, []byte("[100%] Built target install\n")) || !bytes.Contains(log, []byte("NVSHMEM_USE_NCCL=0\n")) {
		t.Errorf("log: %v\n%s", err, log)
	}
	if bytes.Contains(log, []byte("secret")) || strings.Contains(p.Text(), "secret") {
		t.Error("a secret is shown")
	}
	var ends []string
	for _, s := range seen {
		if s.State != Running {
			ends = append(ends, fmt.Sprint(s.Number, "/", s.Of, " ", s.Step, " ", s.State, " ", s.Percent))
		}
	}
	if d := cmp.Diff([]string{"1/4 patch 1 -1", "2/4 configure 1 -1", "3/4 build 1 100", "4/4 install 1 -1"}, ends); d != "" {
		t.Errorf("progress (-want +got):\n%s", d)
	}

	// The next rebuild begins anew, but for the patch.
	again := w.plan()
	if again.Patch.Verdict != "already applied" || again.Patch.Diff != "" {
		t.Errorf("second plan:\n%s", again.Text())
	}
	w.calls()
	if _, err := again.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(w.expected(p), w.calls()); d != "" {
		t.Errorf("calls of the second run (-want +got):\n%s", d)
	}

	tree, err := checkout.Open(w.source)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if _, err := tree.Undo(context.Background(), report.Undo); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(pristine, w.tree("nvshmem_src")); d != "" {
		t.Errorf("after undo:\n%s", d)
	}
}

func TestFaults(t *testing.T) {
	tests := []struct {
		fault  string
		script string
		step   string
		err    string // part of the error
		last   string // one of the last lines
		calls  []string
	}{
		{fault: "configure", step: "configure", err: "exit status 1", last: "cmake: could not find CUDA", calls: []string{"cmake -S"}},
		{fault: "nccl stays on", step: "configure", err: "says NVSHMEM_USE_NCCL=ON", calls: []string{"cmake -S"}},
		{fault: "build at 60%", step: "build", err: "exit status 1", last: "cmake: queue.c:7: error", calls: []string{"cmake -S", "cmake --build"}},
		{fault: "build makes nothing", step: "build", err: "install_manifest.txt: no such file", calls: []string{"cmake -S", "cmake --build"}},
		{fault: "disk full", step: "build", err: "exit status 1", last: "cmake: write /dev/full: no space left on device", calls: []string{"cmake -S", "cmake --build"}},
		{fault: "python", step: "install", err: "exit status 1", last: "python: No module named 'torch'", calls: []string{"cmake -S", "cmake --build", "python setup.py"}},
		{
			fault: "python", script: "rm -rf dist\npython setup.py bdist_wheel || true\n",
			step: "install", err: "ended with status 0, but made no wheel in ", last: "python: No module named 'torch'",
			calls: []string{"cmake -S", "cmake --build", "python setup.py"},
		},
		{
			fault: "pip", step: "install", err: "exit status 1", last: "pip: ERROR: Could not install packages",
			calls: []string{"cmake -S", "cmake --build", "python setup.py", "pip install"},
		},
		{
			fault: "no wheel", script: "rm -rf dist\npython setup.py bdist_wheel\n", step: "install", err: "ended with status 0, but made no wheel in ", last: "running bdist_wheel",
			calls: []string{"cmake -S", "cmake --build", "python setup.py"},
		},
		{
			fault: "no wheel", script: "python setup.py bdist_wheel\n", step: "install", err: "ended with status 0, but made no wheel in ", // but one is there from before
			calls: []string{"cmake -S", "cmake --build", "python setup.py"},
		},
		{
			fault: "import", step: "install", err: "importing deep_ep: exit status 1", last: `python: ModuleNotFoundError: No module named "deep_ep"`,
			calls: []string{"cmake -S", "cmake --build", "python setup.py", "pip install", "python -c"},
		},
		{
			fault: "another module", step: "install", err: "/usr/bin/python imports deep_ep from /elsewhere/deep_ep/__init__.py",
			calls: []string{"cmake -S", "cmake --build", "python setup.py", "pip install", "python -c"},
		},
		{
			fault: "none, but pip keeps what it has", script: "rm -rf dist\npython setup.py bdist_wheel\nPIP_FORCE_REINSTALL=0 pip install dist/*.whl\n",
			step: "install", err: "pip kept an earlier one",
			calls: []string{"cmake -S", "cmake --build", "python setup.py", "pip install", "python -c"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			w := newWorld(t)
			if err := wheelText(filepath.Join(w.checkout, "dist/deep_ep-1.0-py3-none-any.whl")); err != nil {
				t.Fatal(err)
			}
			w.write("site/deep_ep.RECORD", "deep_ep/__init__.py,sha256=old,1\n")
			if tt.script != "" {
				w.write("DeepEP/install.sh", tt.script)
			}
			w.fault(tt.fault)
			p := w.plan()
			w.calls()
			report, err := p.Run(context.Background(), RunOptions{})
			var failed *StepError
			if !errors.As(err, &failed) {
				t.Fatalf("got %v, want a StepError", err)
			}
			if failed.Step != tt.step || !strings.Contains(err.Error(), tt.err) || !strings.HasPrefix(err.Error(), "running the "+tt.step+" step: ") {
				t.Errorf("error %q, want step %s and %q", err, tt.step, tt.err)
			}
			if tt.last != "" && !slices.Contains(failed.Last, tt.last) {
				t.Errorf("last lines %q, want %q among them", failed.Last, tt.last)
			}
			if d := cmp.Diff(tt.calls, names(w.calls())); d != "" {
				t.Errorf("calls (-want +got):\n%s", d)
			}
			if len(report.Wheels) > 0 || report.Undo == "" {
				t.Errorf("report %+v", report)
			}

			// With the fault gone, the same plan goes on at the step that failed.
			w.fault("")
			w.write("DeepEP/install.sh", installScript)
			p = w.plan()
			w.calls()
			if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
				t.Fatal(err)
			}
			all := w.expected(p)
			left := all[map[string]int{"configure": 0, "build": 1, "install": 2}[tt.step]:]
			if d := cmp.Diff(left, w.calls()); d != "" {
				t.Errorf("calls of the run that resumes (-want +got):\n%s", d)
			}
		})
	}
}

// alive reports whether a process is there and is no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// wait waits until ok or for too long.
func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waiting for ", what)
		}
	}
}

// Whether it is killed or takes too long, a step ends with all its processes,
// also one that ignores SIGTERM, and the next run goes on at the same step.
func TestEndedEarly(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks for processes in /proc")
	}
	for _, how := range []string{"interrupted", "time limit"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			w.fault("build hangs")
			p := w.plan()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			hanging := func() int {
				data, _ := os.ReadFile(filepath.Join(w.dir, "hanging"))
				pid, _ := strconv.Atoi(string(data))
				return pid
			}
			ended := make(chan error, 1)
			o := RunOptions{}
			if how == "time limit" {
				o.TimeLimit = 5 * time.Second
			}
			go func() {
				_, err := p.Run(ctx, o)
				ended <- err
			}()
			wait(t, "the build", func() bool { return hanging() > 0 })
			pid := hanging()
			if !alive(pid) {
				t.Fatal("nothing hangs")
			}
			t.Cleanup(func() {
				if alive(pid) {
					syscall.Kill(pid, syscall.SIGKILL)
				}
			})

			_, err := w.plan().Run(context.Background(), RunOptions{})
			if want := "refusing to rebuild " + w.checkout + ": another ncclfix is at it"; err == nil || err.Error() != want {
				t.Errorf("a second run at once: %v, want %s", err, want)
			}

			if how == "interrupted" {
				cancel()
			}
			err = <-ended
			want := map[string]string{
				"interrupted": "running the build step: interrupted",
				"time limit":  "running the build step: the time limit of 5s is over",
			}[how]
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			wait(t, "the process that ignores SIGTERM", func() bool { return !alive(pid) })

			w.fault("")
			w.calls()
			p = w.plan()
			w.calls()
			if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(w.expected(p)[1:], w.calls()); d != "" {
				t.Errorf("calls of the run that resumes (-want +got):\n%s", d)
			}
		})
	}
}

// A log that cannot be written ends the step.
func TestLogDiskFull(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full: ", err)
	}
	defer full.Close()
	c := command{argv: []string{"sh", "-c", "echo hello; exec sleep 60"}, dir: t.TempDir(), env: []string{"PATH=/usr/bin:/bin"}}
	start := time.Now()
	err = c.run(context.Background(), full, &screen{line: func(string, int) {}})
	if !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), "writing the log: ") {
		t.Errorf("got %v, want that the log cannot be written", err)
	}
	if time.Since(start) > 30*time.Second {
		t.Error("the step went on")
	}
}

func TestFrom(t *testing.T) {
	w := newWorld(t)
	run := func(from string) error {
		_, err := w.plan().Run(context.Background(), RunOptions{From: from})
		return err
	}
	for from, want := range map[string]string{
		"test":    `starting at step "test": the plan has only patch, configure, build, install`,
		"build":   "refusing to start at build: the patch step is not done: third-party/nvshmem.patch applies",
		"install": "refusing to start at install: the patch step is not done: third-party/nvshmem.patch applies",
	} {
		if err := run(from); err == nil || err.Error() != want {
			t.Errorf("--from %s: %v, want %s", from, err, want)
		}
	}
	w.fault("configure")
	if err := run(""); err == nil {
		t.Fatal("configure did not fail")
	}
	w.fault("")
	if err := run("install"); err == nil || !strings.HasPrefix(err.Error(), "refusing to start at install: the configure step is not done: ") {
		t.Errorf("--from install: %v", err)
	}
	if err := run("configure"); err != nil {
		t.Fatal(err)
	}
	w.calls()
	if err := run("install"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"cmake --version", "python setup.py", "pip install", "python -c"}, names(w.calls())); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
}

// A plan that differs from that of the interrupted run starts at the beginning.
func TestResumeOnlyTheSame(t *testing.T) {
	w := newWorld(t)
	w.fault("build at 60%")
	if _, err := w.plan().Run(context.Background(), RunOptions{}); err == nil {
		t.Fatal("the build did not fail")
	}
	w.fault("")
	w.calls()
	p := w.plan(func(o *Options) { o.Set = []string{"NVSHMEM_IBGDA_SUPPORT=0"} })
	if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	calls := w.calls()
	if d := cmp.Diff([]string{"cmake --version", "cmake -S", "cmake --build", "python setup.py", "pip install", "python -c"}, names(calls)); d != "" {
		t.Errorf("calls (-want +got):\n%s", d)
	}
	if !slices.Contains(calls[1].Env, "NVSHMEM_IBGDA_SUPPORT=0") {
		t.Errorf("environment %q", calls[1].Env)
	}
}

// A run does not begin while a trap is in the way, and does with --despite.
func TestTrapStopsTheRun(t *testing.T) {
	w := newWorld(t)
	w.write("cmake-version", "3.18.4")
	p := w.plan()
	w.calls()
	_, err := p.Run(context.Background(), RunOptions{})
	if err == nil || !strings.HasPrefix(err.Error(), "refusing to rebuild: ") || len(w.calls()) > 0 {
		t.Errorf("got %v", err)
	}
	p = w.plan(func(o *Options) { o.Despite = []string{"cmake"} })
	if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
		t.Error(err)
	}
}

// What setuptools built before is removed, once per rebuild, and nothing else.
func TestClean(t *testing.T) {
	w := newWorld(t)
	has := func(path string) bool {
		_, err := os.Stat(filepath.Join(w.checkout, path))
		return err == nil
	}
	w.write("DeepEP/build/lib.linux-x86_64/old.so", "")
	w.write("DeepEP/build/temp.linux-x86_64/old.o", "")
	w.write("DeepEP/build/library/book", "")
	w.write("DeepEP/build/lib.txt", "")
	p := w.plan()
	if d := cmp.Diff("patch configure build clean install", stepNames(p)); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
	if !strings.Contains(p.Text(), "    removes build/lib.linux-x86_64\n    removes build/temp.linux-x86_64\n  makes") {
		t.Errorf("the plan does not say what it removes:\n%s", p.Text())
	}
	w.fault("python")
	if _, err := p.Run(context.Background(), RunOptions{}); err == nil {
		t.Fatal("python did not fail")
	}
	if has("build/lib.linux-x86_64") || has("build/temp.linux-x86_64") || !has("build/library/book") || !has("build/lib.txt") {
		t.Error("not just what earlier builds left was removed")
	}

	// The run that resumes takes up what the failed one left.
	w.fault("")
	w.write("DeepEP/build/temp.linux-x86_64/new.o", "")
	if _, err := w.plan().Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if !has("build/temp.linux-x86_64/new.o") {
		t.Error("the failed run's own work was removed")
	}

	_, err := w.plan().Run(context.Background(), RunOptions{From: "install"})
	if want := "refusing to start at install: the clean step is not done: build/temp.linux-x86_64 is of an earlier build"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := w.plan().Run(context.Background(), RunOptions{From: "clean"}); err != nil {
		t.Error(err)
	}
	if has("build/temp.linux-x86_64/new.o") {
		t.Error("the finished run's work is left")
	}
}
