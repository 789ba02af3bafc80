package verify

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
	"ncclfix/rebuild/ncclog"
)

// verdicts runs cfg in a folder of its own and returns the checks by name.
func verdicts(t *testing.T, cfg Config) (*Report, map[string]Check) {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.Runs == 0 {
		cfg.Runs = 1
	}
	cfg.Logs, cfg.MinRatio = t.TempDir(), 0.98
	r, err := Execute(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]Check{}
	for _, c := range r.Checks {
		checks[c.Name] = c
	}
	return r, checks
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func python(t *testing.T, script string) []string {
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return []string{"python3", "-c", script}
}

func TestFunction(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         Verdict
		detail       string
	}{
		{"clean", "echo all tests passed", Pass, ""},
		{"status", "echo all tests passed; exit 3", Fail, "ended with status 3"},
		{"signal", "kill -9 $$", Fail, "ended by a signal: killed"},
		{"exit warning", "echo tests passed; echo '[rank0]:[W1201 00:46:44.1 ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not called before program exit, which' >&2",
			Fail, "exit noise from c10d"},
		{"unknown NCCL warning", "echo 'h:1:2 [0] x.cc:1 NCCL WARN never seen'", Fail, "unclear from NCCL"},
		{"unknown warning of the program", "echo 'WARNING: the moon is full'", Pass, "note: unclear from program"},
		{"trouble", "echo 'CUDA error: an illegal memory access was encountered'", Fail, "trouble from CUDA"},
		{"advice", "echo 'UserWarning: barrier(): using the device under current context'", Pass, "note: advice from c10d"},
		{"hostile output", "printf 'h:1:2 [0] x.cc:1 NCCL WARN \\033[2Jgone\\n'", Fail, "NCCL WARN gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, checks := verdicts(t, Config{Command: sh(c.script)})
			got := checks["function"]
			if got.Verdict != c.want || !strings.Contains(strings.Join(got.Details, "\n"), c.detail) {
				t.Errorf("got %+v, want %s and %q", got, c.want, c.detail)
			}
			if r.Passed != (c.want == Pass) {
				t.Errorf("passed: %v", r.Passed)
			}
		})
	}
}

func TestCommandNotFound(t *testing.T) {
	_, err := Execute(t.Context(), Config{Command: []string{"./absent"}, Dir: t.TempDir(), Runs: 1, Logs: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), `running "./absent": no such file`) {
		t.Errorf("error: %v", err)
	}
}

func TestStability(t *testing.T) {
	t.Run("flat", func(t *testing.T) {
		r, checks := verdicts(t, Config{Command: python(t, "x = bytearray(8 << 20)"), Runs: 8})
		if c := checks["stability"]; c.Verdict != Pass || !strings.Contains(c.Summary, "peak memory is flat at") {
			t.Errorf("%+v", c)
		}
		if r.Runs[0].PeakRSS < 8<<20 {
			t.Errorf("peak memory %d", r.Runs[0].PeakRSS)
		}
	})
	t.Run("shared memory", func(t *testing.T) {
		shm := t.TempDir()
		for script, want := range map[string]Check{
			"echo x > " + shm + "/nccl-$$":                           {Verdict: Fail, Details: []string{"leaves 1 segment of shared memory, such as " + shm + "/nccl-* (3 runs)"}},
			"test -e once || echo x > " + shm + "/other; touch once": {Verdict: Pass, Details: []string{"note: leaves 1 segment of shared memory, such as " + shm + "/other; or another program did"}},
			"echo x > " + shm + "/tidy-$$; rm " + shm + "/tidy-*":    {Verdict: Pass},
		} {
			_, checks := verdicts(t, Config{Command: sh(script), Runs: 3, SharedMemory: shm})
			got := checks["stability"]
			if got.Verdict != want.Verdict || !cmp.Equal(got.Details, want.Details) {
				t.Errorf("%s: %+v", script, got)
			}
		}
	})
	t.Run("shared memory in use", func(t *testing.T) {
		shm := t.TempDir()
		f, err := os.Create(filepath.Join(shm, "used"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Truncate(1); err != nil {
			t.Fatal(err)
		}
		if got := abandoned(shm, nil); got != nil {
			t.Errorf("open: %q", got)
		}
		mapped, err := syscall.Mmap(int(f.Fd()), 0, 1, syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if got := abandoned(shm, nil); got != nil {
			t.Errorf("mapped: %q", got)
		}
		if err := syscall.Munmap(mapped); err != nil {
			t.Fatal(err)
		}
		if got := abandoned(shm, nil); !cmp.Equal(got, []string{f.Name()}) {
			t.Errorf("abandoned: %q", got)
		}
	})
	t.Run("descriptor lost by a worker", func(t *testing.T) {
		_, checks := verdicts(t, Config{Command: python(t, "import os; os.open('/etc/hostname', os.O_RDONLY)"), Runs: 2})
		if c := checks["stability"]; c.Verdict != Fail || len(c.Details) != 1 || !strings.Contains(c.Details[0], "without closing a descriptor of /etc/hostname (2 runs)") {
			t.Errorf("%+v", c)
		}
	})
	// A worker that serves all runs and opens one more file in each.
	t.Run("descriptors of a long-lived worker", func(t *testing.T) {
		dir := t.TempDir()
		server := `import os, sys, time
open("pid", "w").write(str(os.getpid()))
kept = []
while True:
    if os.path.exists("ask"):
        kept.append(open(os.devnull)); os.remove("ask")
    time.sleep(0.005)
`
		if err := os.WriteFile(filepath.Join(dir, "server.py"), []byte(server), 0o644); err != nil {
			t.Fatal(err)
		}
		python(t, "") // skips without Python
		script := "test -e pid || setsid python3 server.py </dev/null >/dev/null 2>&1 & while ! test -s pid; do sleep 0.01; done; touch ask; while test -e ask; do sleep 0.01; done"
		_, checks := verdicts(t, Config{Command: sh(script), Dir: dir, Runs: 3})
		c := checks["stability"]
		if all := strings.Join(c.Details, "\n"); c.Verdict != Fail || !strings.Contains(all, "leaves a process running: ") || !strings.Contains(all, "holds more and more descriptors") {
			t.Errorf("%+v", c)
		}
		pid, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		var n int
		fmt.Sscan(string(pid), &n)
		if syscall.Kill(n, 0) == nil && !zombie(n) {
			t.Errorf("process %d was left running", n)
		}
	})
}

func TestGrows(t *testing.T) {
	for _, c := range []struct {
		name    string
		figures []float64
		want    bool
	}{
		{"too few", []float64{1, 20, 30, 40, 50}, false},
		{"flat", []float64{100, 100, 100, 100, 100, 100, 100}, false},
		{"steady", []float64{100, 110, 120, 130, 140, 150, 160}, true},
		{"steady, within slack", []float64{100, 100.1, 100.2, 100.3, 100.4, 100.5, 100.6}, false},
		{"warm-up only", []float64{10, 100, 100, 100, 100, 100, 100}, false},
		{"noise", []float64{100, 130, 90, 120, 95, 135, 101, 125, 99}, false},
		{"with noise", []float64{100, 110, 108, 125, 131, 129, 145, 150, 149, 160}, true},
		{"one late step", []float64{100, 100, 100, 100, 100, 100, 100, 200}, false},
	} {
		if got := grows(c.figures, 5); got != c.want {
			t.Errorf("%s: grows = %v", c.name, got)
		}
	}
}

// What is over its time, and what is interrupted, is ended with all its
// processes, those in sessions of their own included.
func TestEnding(t *testing.T) {
	const script = "setsid sh -c 'echo $$ > pid; exec sleep 60' & while ! test -s pid; do sleep 0.01; done; %s"
	gone := func(t *testing.T, dir string) {
		data, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			t.Fatal(err)
		}
		var pid int
		fmt.Sscan(string(data), &pid)
		for range 100 {
			if syscall.Kill(pid, 0) != nil || zombie(pid) {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("process %d still runs", pid)
	}
	t.Run("time limit", func(t *testing.T) {
		dir := t.TempDir()
		r, checks := verdicts(t, Config{Command: sh(fmt.Sprintf(script, "sleep 60")), Dir: dir, Timeout: time.Second})
		if !r.Runs[0].TimedOut || checks["function"].Verdict != Fail || r.Runs[0].Seconds > 20 {
			t.Errorf("%+v", r.Runs[0])
		}
		gone(t, dir)
	})
	t.Run("interrupt", func(t *testing.T) {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := Execute(ctx, Config{
			Command: sh(fmt.Sprintf(script, "test -e again && sleep 60; touch again; kill $(cat pid); echo passed")), Dir: dir, Runs: 5, Logs: t.TempDir(),
			Started: func(label string) {
				if label == "run 2" {
					time.AfterFunc(300*time.Millisecond, cancel)
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if !r.Interrupted || r.Passed || len(r.Runs) != 1 || r.Wanted != 5 || r.Checks[0].Verdict != Pass {
			t.Errorf("%+v", r)
		}
		gone(t, dir)
	})
}

func log(t *testing.T, text string) *Baseline {
	t.Helper()
	name := filepath.Join(t.TempDir(), "base.log")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	b, err := LogBaseline(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBandwidth(t *testing.T) {
	for _, c := range []struct {
		name, base, output string
		want               Verdict
		detail             string
	}{
		{"97.9%", "dispatch: 100 GB/s", "dispatch: 97.9 GB/s", Fail, "dispatch: 97.90 GB/s is 97.9% of 100.00"},
		{"98.1%", "dispatch: 100 GB/s", "dispatch: 98.1 GB/s", Pass, ""},
		{"98% to the digit", "dispatch: 100 GB/s", "dispatch: 98.0 GB/s", Pass, ""},
		{"one side has it", "dispatch: 100 GB/s\nold: 5 GB/s", "dispatch: 100 GB/s\nnew: 1 GB/s", Pass, "new: not in the baseline\nold: only in the baseline"},
		{"nothing in common", "old: 5 GB/s", "new: 1 GB/s", Unknown, "new: not in the baseline"},
		{"two units", "[tuning] Best dispatch: SMs 24, 40 GB/s (RDMA), 130 GB/s (NVL)", "[tuning] Best dispatch: SMs 20, 40 GB/s (RDMA), 90 GB/s (NVL)", Fail, "Best dispatch (NVL): 90.00"},
		{"median of ranks", "[rank 0] x: 10 GB/s\n[rank 1] x: 10 GB/s\n[rank 2] x: 10 GB/s", "[rank 0] x: 1 GB/s\n[rank 1] x: 10 GB/s\n[rank 2] x: 10 GB/s", Pass, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, checks := verdicts(t, Config{Command: []string{"printf", "%s\n", c.output}, Baseline: log(t, c.base)})
			if got := checks["bandwidth"]; got.Verdict != c.want || !strings.Contains(strings.Join(got.Details, "\n"), c.detail) {
				t.Errorf("%+v, want %s and %q", got, c.want, c.detail)
			}
		})
	}
	if _, err := LogBaseline(os.DevNull); err == nil || !strings.Contains(err.Error(), "no figure in GB/s") {
		t.Errorf("empty log: %v", err)
	}
}

// repository makes a git repository with a script that reports less bandwidth
// since its second commit.
func repository(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "checkout")
	write := func(speed int) {
		if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "sub", "bench.sh"), fmt.Appendf(nil, "echo speed: %d GB/s\n", speed), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write(100)
	// What is left out of archives is tested all the same.
	if err := os.WriteFile(filepath.Join(dir, ".gitattributes"), []byte("sub export-ignore\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-qm", "one")
	git("tag", "before")
	write(50)
	git("commit", "-qam", "two")
	return dir
}

func TestRevisionBaseline(t *testing.T) {
	root := repository(t)
	sub := filepath.Join(root, "sub")
	base, err := RevisionBaseline(t.Context(), root, sub, "before")
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Dir(filepath.Dir(base.Dir)) != filepath.Dir(root) {
		t.Errorf("%s does not lie beside %s", base.Dir, root)
	}
	var order []string
	r, checks := verdicts(t, Config{Command: []string{"sh", filepath.Join(sub, "bench.sh")}, Dir: sub, Runs: 2, Baseline: base,
		Started: func(l string) { order = append(order, l) }})
	if d := cmp.Diff([]string{"run 1", "base 1", "run 2", "base 2"}, order); d != "" {
		t.Error(d)
	}
	if c := checks["bandwidth"]; c.Verdict != Fail {
		t.Errorf("%+v", c)
	}
	if d := cmp.Diff([]Comparison{{Label: "speed", Candidate: 50, Baseline: 100, Ratio: 0.5}}, r.Bandwidth); d != "" {
		t.Error(d)
	}
	if err := base.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(root), ".ncclfix*")); left != nil {
		t.Errorf("left: %q", left)
	}
	for _, bad := range []string{"absent", "--help", "before:sub"} {
		if _, err := RevisionBaseline(t.Context(), root, sub, bad); err == nil || !strings.Contains(err.Error(), "no git revision") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	status := exec.Command("git", "-C", root, "status", "--porcelain")
	if out, err := status.Output(); err != nil || len(out) > 0 {
		t.Errorf("the repository changed: %s %v", out, err)
	}
}

func TestChangedBaseline(t *testing.T) {
	root := repository(t)
	if err := os.Symlink("sub/bench.sh", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	base, err := ChangedBaseline(root, root, "20261201-1", []patchers.FileChange{
		{Path: "sub/bench.sh", Op: patchers.Modify, Mode: 0o755, New: []byte("echo speed: 49 GB/s\n")},
		{Path: "new/a.sh", Op: patchers.Create, Mode: 0o644, New: []byte("x")},
		{Path: ".gitattributes", Op: patchers.Delete},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	_, checks := verdicts(t, Config{Command: []string{"sh", "link"}, Dir: root, Baseline: base})
	if c := checks["bandwidth"]; c.Verdict != Pass {
		t.Errorf("%+v", c)
	}
	for name, want := range map[string]bool{"new/a.sh": true, ".gitattributes": false, ".git": false, "link": true} {
		if _, err := os.Lstat(filepath.Join(base.Dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ChangedBaseline(root, filepath.Join(root, "absent"), "x", nil); err == nil || !strings.Contains(err.Error(), "no folder absent") {
		t.Errorf("absent folder: %v", err)
	}
}

func TestMemcheck(t *testing.T) {
	const report = `<?xml version="1.0"?><valgrindoutput>
<error><unique>0x0</unique><kind>Leak_DefinitelyLost</kind><xwhat><text>16 bytes</text><leakedbytes>16</leakedbytes><leakedblocks>1</leakedblocks></xwhat></error>
<error><unique>0x1</unique><kind>Leak_PossiblyLost</kind><xwhat><leakedbytes>99</leakedbytes><leakedblocks>9</leakedblocks></xwhat></error>
<error><unique>0x2</unique><kind>InvalidRead</kind><what>Invalid read of size 8</what></error>
`
	m := Memcheck{Errors: map[string]int{}}
	for _, text := range []string{report + "</valgrindoutput>", report + "<error><kind>Inval"} {
		if err := m.read(strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
	}
	want := Memcheck{Processes: 2, Errors: map[string]int{"InvalidRead": 2}, Lost: 32, Blocks: 2}
	if d := cmp.Diff(want, m); d != "" {
		t.Error(d)
	}
	if c := m.check(); c.Verdict != Fail {
		t.Errorf("%+v", c)
	}
	if err := m.read(strings.NewReader("<a></b>")); err == nil {
		t.Error("damaged XML is read without an error")
	}
}

// The real valgrind's report is read.
func TestValgrind(t *testing.T) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	r, checks := verdicts(t, Config{Command: sh("/bin/true; exit 0"), Valgrind: true})
	if c := checks["valgrind"]; c.Verdict != Pass || r.Valgrind.Processes < 2 {
		t.Errorf("%+v %+v", c, r.Valgrind)
	}
}

func TestSave(t *testing.T) {
	hostile := "a|b <script> `x` @user\n\x1b[31m](evil)"
	r := &Report{
		Version: 1, Command: []string{"python", hostile}, Wanted: 2, Baseline: "v1", MinRatio: 0.98,
		Runs: []Run{{Label: "run 1", PeakRSS: 5 << 20, Output: &ncclog.Report{Measurements: []ncclog.Measurement{{Label: hostile, Values: []float64{10}}}}},
			{Label: "run 2", PeakRSS: 5 << 20, Output: &ncclog.Report{Measurements: []ncclog.Measurement{{Label: hostile, Values: []float64{11}}}}}},
	}
	r.judge(nil)
	name := filepath.Join(t.TempDir(), "report")
	files, err := r.Save(name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{name + ".json", name + ".svg", name + ".md"}, files); d != "" {
		t.Fatal(d)
	}
	text := map[string]string{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text[filepath.Ext(f)] = string(data)
	}
	var back Report
	if err := json.Unmarshal([]byte(text[".json"]), &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(*r, back); d != "" {
		t.Errorf("JSON does not give the report back:\n%s", d)
	}
	d := xml.NewDecoder(strings.NewReader(text[".svg"]))
	lines := 0
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := tok.(xml.StartElement); ok && s.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 2 {
		t.Errorf("%d lines in the plot, want 2", lines)
	}
	md := text[".md"]
	for _, want := range []string{"### ncclfix verify: verified", "| function | ✅ pass |", "![bandwidth and peak memory by run](report.svg)"} {
		if !strings.Contains(md, want) {
			t.Errorf("no %q in\n%s", want, md)
		}
	}
	for _, bad := range []string{"<script>", "\x1b", "| a|b", "@user"} {
		if strings.Contains(strings.ReplaceAll(md, "`` python a|b <script> `x` @user\\n\\x1b[31m](evil) ``", ""), bad) && strings.Count(md, bad) > strings.Count(md, "``") {
			t.Errorf("%q stands in\n%s", bad, md)
		}
	}
	if _, err := r.Save(filepath.Join(t.TempDir(), "no", "such", "folder")); err == nil {
		t.Error("saved into a folder that is not there")
	}
}

// With real PyTorch on gloo, two ranks.
func TestTorch(t *testing.T) {
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import torch.distributed").Run() != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(python + " has no PyTorch")
		}
		t.Skip(python + " has no PyTorch")
	}
	const program = `import os, socket, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1))
    if "destroy" in sys.argv:
        dist.destroy_process_group()
if __name__ == "__main__":
    s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
    # PyTorch 1.13 may abort in a process that leaves its group open, and the other
    # must not be ended for that.
    context = mp.spawn(worker, (port,), nprocs=2, join=False)
    for p in context.processes:
        p.join()
    print("all passed")
`
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "program.py"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"destroy"}} {
		r, checks := verdicts(t, Config{Command: append([]string{python, "program.py"}, args...), Dir: dir})
		c := checks["open groups"]
		if len(args) == 1 {
			if !r.Passed || c.Verdict != Pass {
				t.Errorf("%+v", r.Checks)
			}
			continue
		}
		if r.Passed || c.Verdict != Fail || len(c.Details) != 2 || !slices.ContainsFunc(c.Details, func(d string) bool {
			return strings.Contains(d, "left open by worker (") && strings.Contains(d, "program.py:3), rank 1")
		}) {
			t.Errorf("%+v", r.Checks)
		}
	}
}
