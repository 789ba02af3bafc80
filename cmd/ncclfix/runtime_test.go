package main_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"ncclfix/patchers"
	"ncclfix/patchers/teardown"
	"ncclfix/rebuild/verify/probe"
)

// These tests hold the repair against PyTorch itself: programs with two ranks on
// gloo run before and after it, and the probe says which of their processes end
// with an open process group.

const python = "/usr/bin/python3"

// needTorch skips the test where there is no PyTorch, or fails it where
// everything has to be there.
func needTorch(t *testing.T) {
	t.Helper()
	out, err := exec.Command(python, "-c", "import pytest, torch.distributed as d; assert d.is_available()").CombinedOutput()
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("%s has no PyTorch or no pytest: %s", python, out)
	default:
		t.Skipf("%s has no PyTorch or no pytest", python)
	}
}

// rankEnv returns the environment of each rank, as torchrun sets it. Without
// ranks it is that of one process, which starts its ranks itself.
func rankEnv(t *testing.T, ranks int) []map[string]string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	var all []map[string]string
	for rank := range max(ranks, 1) {
		env := map[string]string{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
		if ranks > 0 {
			env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"] = strconv.Itoa(rank), strconv.Itoa(rank), strconv.Itoa(ranks)
		}
		all = append(all, env)
	}
	return all
}

// baseEnv is the environment of all programs. Threads are a matter of speed only.
func baseEnv(probe []string) []string {
	return append(os.Environ(), append(probe, "OMP_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1")...)
}

// repair does to the tree in dir what fix --select teardown does, and returns the
// files that it changes.
func repair(t *testing.T, dir string) (changed []string) {
	t.Helper()
	tree := patchers.Tree{FS: os.DirFS(dir)}
	if err := fs.WalkDir(tree.FS, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			tree.Files = append(tree.Files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(tree.Files)
	use := []*patchers.Patcher{teardown.Patcher}
	findings, err := patchers.Analyze(t.Context(), tree, patchers.Options{}, use)
	if err != nil {
		t.Fatal(err)
	}
	set, err := patchers.Plan(tree, use, findings)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range set.Files {
		writeFile(t, filepath.Join(dir, f.Path), f.New)
		changed = append(changed, f.Path)
	}
	return changed
}

func writeFile(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// countOpen returns how many processes ended with an open group, and a report of
// all of them.
func countOpen(ps []probe.Process) (open int, all string) {
	for _, p := range ps {
		if p.Group == probe.Open {
			open++
		}
		all += fmt.Sprintf("%s, %s: %s\n", p.Group, p.Exit, p.Name())
	}
	return open, all
}

// launch starts the ranks of a program, each as a Python of its own, and returns
// how many processes end with an open group. All must succeed; those that leak may
// abort when they are done, since the threads of gloo's group are still there then
// (seen now and then with PyTorch 1.13).
func launch(t *testing.T, dir string, ranks int, leaks bool, argv ...string) int {
	t.Helper()
	records := t.TempDir()
	env, err := probe.Install(records)
	if err != nil {
		t.Fatal(err)
	}
	var cmds []*exec.Cmd
	var outs []*strings.Builder
	for _, rank := range rankEnv(t, ranks) {
		cmd := exec.CommandContext(t.Context(), python, argv...)
		cmd.Dir, cmd.Env = dir, baseEnv(env)
		for k, v := range rank {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		out := &strings.Builder{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	for i, cmd := range cmds {
		switch err := cmd.Wait(); {
		case err != nil && leaks && strings.HasSuffix(strings.TrimSpace(outs[i].String()), "terminate called without an active exception"):
			t.Logf("rank %d of %q aborts when it is done", i, argv)
		case err != nil:
			t.Errorf("rank %d of %q: %v\n%s", i, argv, err, outs[i])
		}
	}
	ps, err := probe.Read(records)
	if err != nil {
		t.Fatal(err)
	}
	open, all := countOpen(ps)
	if len(ps) < max(ranks, 1) {
		t.Errorf("%q: the probe saw too few processes:\n%s", argv, all)
	}
	return open
}

// A script in the manner of torchrun: each rank finds its place in the environment.
const script = `import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == dist.get_world_size() == 2


if __name__ == "__main__":
    main()
`

// A test module that every rank runs in a pytest of its own.
const testModule = `import torch
import torch.distributed as dist


def test_reduce():
    dist.init_process_group("gloo")
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == dist.get_world_size() == 2
`

// Two ranks end with an open group before the repair, none after it, however the
// ranks are started.
func TestRepairAtRunTime(t *testing.T) {
	needTorch(t)
	torchrun := []string{"-m", "torch.distributed.run", "--nproc_per_node=2", "--monitor_interval=0.2", "--master_addr=127.0.0.1", "--master_port=" + rankEnv(t, 0)[0]["MASTER_PORT"]}
	if exec.Command(python, "-c", "import sys, torch; sys.exit(torch.__version__ >= '2')").Run() == nil {
		// Without these, the torchrun of PyTorch 1.13 fails on Python 3.11.
		torchrun = append(torchrun, "--redirects=1", "--tee=1", "--log_dir=logs")
	}
	for _, c := range []struct {
		name  string
		tree  string
		file  string // a single file instead of a tree: its name and text
		text  string
		ranks int
		argv  []string
	}{
		{name: "spawn", tree: "deepep-2025-06", argv: []string{"tests/test_intranode.py"}},
		{name: "script", file: "train.py", text: script, ranks: 2, argv: []string{"train.py"}},
		{name: "torchrun", file: "train.py", text: script, argv: append(torchrun, "train.py")},
		{name: "pytest", file: "test_reduce.py", text: testModule, ranks: 2, argv: []string{"-m", "pytest", "-q", "-p", "no:cacheprovider", "test_reduce.py"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if c.tree != "" {
				if err := os.CopyFS(dir, os.DirFS(filepath.Join("../../testdata/trees", c.tree))); err != nil {
					t.Fatal(err)
				}
			} else {
				writeFile(t, filepath.Join(dir, c.file), []byte(c.text))
			}
			if n := launch(t, dir, c.ranks, true, c.argv...); n != 2 {
				t.Errorf("%d processes end with an open group before the repair, want 2", n)
			}
			repair(t, dir)
			if n := launch(t, dir, c.ranks, false, c.argv...); n != 0 {
				t.Errorf("%d processes end with an open group after the repair, want 0", n)
			}
		})
	}
}

// A host runs programs one after the other, each rank as a fork of one Python
// that has imported PyTorch: that takes most of the time of a small program.
type host struct {
	in      io.WriteCloser
	answers *bufio.Reader
	records string
	seen    map[int]bool // processes of earlier runs
}

func startHost(t *testing.T) *host {
	t.Helper()
	h := &host{records: t.TempDir(), seen: map[int]bool{}}
	env, err := probe.Install(h.records)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "testdata/ranks.py")
	cmd.Env, cmd.Stderr = baseEnv(env), os.Stderr
	if h.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.answers = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("ending testdata/ranks.py: %v", err)
		}
	})
	return h
}

// run runs a program and reports processes that fail, and those that end with an
// open group.
func (h *host) run(t *testing.T, dir string, ranks int, argv []string) {
	t.Helper()
	out := t.TempDir()
	request, err := json.Marshal(map[string]any{"dir": dir, "argv": argv, "ranks": rankEnv(t, ranks), "out": out, "timeout": 60})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.in.Write(append(request, '\n')); err != nil {
		t.Fatal(err)
	}
	answer, err := h.answers.ReadBytes('\n')
	if err != nil {
		t.Fatalf("reading the answer of testdata/ranks.py: %v", err)
	}
	var status []int
	if err := json.Unmarshal(answer, &status); err != nil {
		t.Fatal(err)
	}
	for rank, code := range status {
		if code != 0 {
			text, _ := os.ReadFile(filepath.Join(out, fmt.Sprintf("%d.txt", rank)))
			t.Errorf("rank %d of %q: exit status %d\n%s", rank, argv, code, text)
		}
	}
	ps, err := probe.Read(h.records)
	if err != nil {
		t.Fatal(err)
	}
	ps = slices.DeleteFunc(ps, func(p probe.Process) bool { return h.seen[p.PID] })
	for _, p := range ps {
		h.seen[p.PID] = true
	}
	open, all := countOpen(ps)
	if len(ps) < max(ranks, 1) {
		t.Errorf("%q: the probe saw too few processes:\n%s", argv, all)
	}
	if open > 0 {
		t.Errorf("%q: %d processes end with an open group:\n%s", argv, open, all)
	}
}

// runLine matches how a case says that it can run: "# runs: 2 ranks: python3 train.py".
// Without a number of ranks the program starts its ranks itself.
var runLine = regexp.MustCompile(`(?m)^# runs: (?:(\d+) ranks: )?python3 (.+)$`)

// After the repair, no case that can run leaves a group open, and none raises.
func TestCasesAtRunTime(t *testing.T) {
	needTorch(t)
	scripts, err := filepath.Glob("../../testdata/script/teardown-*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	hosts := make(chan *host, 2)
	for range cap(hosts) {
		hosts <- startHost(t)
	}
	for _, name := range scripts {
		a, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		runs := runLine.FindAllStringSubmatch(string(a.Comment), -1)
		if len(runs) == 0 {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, f := range a.Files {
				if !strings.HasPrefix(f.Name, "want/") && f.Name != "findings" {
					writeFile(t, filepath.Join(dir, f.Name), f.Data)
				}
			}
			repair(t, dir)
			h := <-hosts
			defer func() { hosts <- h }()
			for _, run := range runs {
				ranks, _ := strconv.Atoi(cmp.Or(run[1], "0"))
				h.run(t, dir, ranks, strings.Fields(run[2]))
			}
		})
	}
}

// The trees of DeepEP's shape need repair in the tests that do not destroy, and
// only there; the repaired tests end without an open group. TestRepairAtRunTime
// runs test_intranode.py, which the trees have in common but for its arguments.
func TestTreesAtRunTime(t *testing.T) {
	needTorch(t)
	hosts := make(chan *host, 2)
	for range cap(hosts) {
		hosts <- startHost(t)
	}
	const internode, intranode, lowLatency = "tests/test_internode.py", "tests/test_intranode.py", "tests/test_low_latency.py"
	for tree, c := range map[string]struct{ changed, run []string }{
		"deepep-2025-02":           {[]string{internode, intranode, lowLatency}, []string{lowLatency}},
		"deepep-2025-06":           {[]string{internode, intranode, lowLatency}, nil},
		"deepep-2025-06-intranode": {[]string{internode, lowLatency}, []string{internode}},
		"deepep-2026-02":           {},
		"deepep-2026-07":           {},
	} {
		t.Run(tree, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(filepath.Join("../../testdata/trees", tree))); err != nil {
				t.Fatal(err)
			}
			if changed := repair(t, dir); !slices.Equal(changed, c.changed) {
				t.Errorf("the repair changes %q, want %q", changed, c.changed)
			}
			h := <-hosts
			defer func() { hosts <- h }()
			for _, test := range c.run {
				h.run(t, dir, 0, []string{test})
			}
		})
	}
}
