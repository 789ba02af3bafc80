package probe

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// torchDistributed stands in for PyTorch where only the interpreter matters. It
// says so if the probe ever imports it.
const torchDistributed = `
class GroupMember:
    WORLD = None
def is_initialized(): return GroupMember.WORLD is not None
def init_process_group(*a, **k): GroupMember.WORLD = object()
def destroy_process_group(): GroupMember.WORLD = None
def get_rank(): return 0
def get_backend(): return "stub"
`

// pythons returns the interpreters from 3.8 on that can be had here.
func pythons(t *testing.T) []string {
	var found []string
	for minor := 8; minor <= 14; minor++ {
		name := fmt.Sprintf("python3.%d", minor)
		if exec.Command(name, "-c", "pass").Run() == nil {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		missing(t, "no Python from 3.8 to 3.14 on PATH")
	}
	return found
}

// missing skips the test, or fails it where everything has to be there.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// run runs a command under the probe in a folder that holds files, and returns
// its status, its output and what the probe saw.
func run(t *testing.T, files map[string]string, argv ...string) (status int, output string, ps []Process) {
	t.Helper()
	work, dir := t.TempDir(), filepath.Join(t.TempDir(), "pro[be] dir")
	for name, text := range files {
		name = filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PYTHONPATH", work)
	env, err := Install(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = work, append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	ps, err = Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), ps
}

// summary says what was seen of each process in a few words, in any order.
func summary(ps []Process) []string {
	var s []string
	for _, p := range ps {
		w := []string{string(p.Group), string(p.Exit)}
		if p.Target != nil {
			w = append(w, p.Target.Name)
		}
		for _, f := range p.LostFiles {
			w = append(w, "lost "+filepath.Base(f))
		}
		s = append(s, strings.Join(w, " "))
	}
	slices.Sort(s)
	return s
}

func TestProbe(t *testing.T) {
	const open = "import torch.distributed as dist\ndist.init_process_group()\n"
	const mp = "import multiprocessing, os, sys\nimport torch.distributed as dist\n" +
		"def worker():\n    dist.init_process_group()\n%s" +
		"if __name__ == '__main__':\n    p = multiprocessing.get_context('%s').Process(target=worker)\n    p.start(); p.join(); sys.exit(p.exitcode)\n"
	for _, c := range []struct {
		name, program string
		status        int
		want          []string
	}{
		{"no torch", "pass", 0, []string{"closed normal"}},
		{"never opened", "import torch.distributed", 0, []string{"closed normal"}},
		{"open", open, 0, []string{"open normal"}},
		{"destroyed", open + "dist.destroy_process_group()", 0, []string{"closed normal"}},
		{"destroyed by atexit", open + "import atexit; atexit.register(dist.destroy_process_group)", 0, []string{"closed normal"}},
		{"sys.exit", open + "raise SystemExit(7)", 7, []string{"open normal"}},
		{"exception", open + "import sys; sys.excepthook = lambda *a: None\nraise ValueError", 1, []string{"open exception"}},
		{"os._exit", open + "import os; os._exit(9)", 9, []string{"unknown unknown"}},
		{"exec", "import os, sys; os.execv(sys.executable, [sys.executable, 'opens.py'])", 0, []string{"open normal"}},
		{"os.fork", open + "import os\nif os.fork(): os.wait()\nelse: sys = __import__('sys'); sys.exit(0)", 0,
			[]string{"closed normal", "open normal"}}, // the child only inherited the group
		{"os.fork, child opens", "import os\nif os.fork(): os.wait()\nelse:\n    import torch.distributed as d; d.init_process_group()", 0,
			[]string{"closed normal", "open normal"}},
		{"os.fork, os._exit", "import os\nif os.fork(): os.wait()\nelse: os._exit(0)", 0, []string{"closed normal", "unknown unknown"}},
		{"subprocess", "import subprocess; subprocess.check_call(['true'], preexec_fn=lambda: None)", 0, []string{"closed normal"}},
		{"fork", fmt.Sprintf(mp, "", "fork"), 0, []string{"closed normal", "open normal worker"}},
		{"fork, destroyed", fmt.Sprintf(mp, "    dist.destroy_process_group()\n", "fork"), 0, []string{"closed normal", "closed normal worker"}},
		{"fork, killed", fmt.Sprintf(mp, "    os.kill(os.getpid(), 9)\n", "fork"), 247, []string{"closed normal", "unknown unknown"}},
		{"spawn", fmt.Sprintf(mp, "", "spawn"), 0, []string{"closed normal", "open normal worker"}},
		{"spawn, status", fmt.Sprintf(mp, "    dist.destroy_process_group(); sys.exit(3)\n", "spawn"), 3, []string{"closed normal", "closed normal worker"}},
		{"lost file", "import os; os.open('opens.py', 0); kept = open('opens.py')", 0, []string{"closed normal lost opens.py"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, python := range pythons(t) {
				files := map[string]string{
					"torch/__init__.py": "", "torch/distributed.py": torchDistributed,
					"main.py": c.program, "opens.py": open,
				}
				status, out, ps := run(t, files, python, "main.py")
				// multiprocessing's own trackers are no concern of the program.
				ps = slices.DeleteFunc(ps, func(p Process) bool { return strings.Contains(strings.Join(p.Argv, " "), "resource_tracker") })
				if status != c.status || out != "" {
					t.Errorf("%s: status %d, want %d; output %q, want none", python, status, c.status, out)
				}
				if d := cmp.Diff(c.want, summary(ps)); d != "" {
					t.Errorf("%s (-want +got):\n%s%+v", python, d, ps)
				}
			}
		})
	}
}

// The forkserver ends its children as fork does, and is a process of its own.
func TestProbeForkserver(t *testing.T) {
	const program = `
import multiprocessing
import torch.distributed as dist
def worker():
    dist.init_process_group()
if __name__ == '__main__':
    p = multiprocessing.get_context('forkserver').Process(target=worker)
    p.start(); p.join()
`
	for _, python := range pythons(t) {
		files := map[string]string{"torch/__init__.py": "", "torch/distributed.py": torchDistributed, "main.py": program}
		_, out, ps := run(t, files, python, "main.py")
		if out != "" {
			t.Errorf("%s: output %q, want none", python, out)
		}
		if got := summary(ps); !slices.Contains(got, "open normal worker") || !slices.Contains(got, "closed normal") {
			t.Errorf("%s: %q", python, got)
		}
	}
}

// The sitecustomize behind the probe runs as if it stood alone, errors included.
func TestProbeGivesWay(t *testing.T) {
	const program = "import sys, sitecustomize\nprint(sitecustomize.__file__.split('/')[-2:], sitecustomize.mark, any('pro[be]' in p for p in sys.path))"
	for _, python := range pythons(t) {
		files := map[string]string{"main.py": program, "sitecustomize.py": "import sys; mark = __name__; sys.path.append('/added')"}
		_, out, ps := run(t, files, python, "main.py")
		if !strings.HasSuffix(out, "'sitecustomize.py'] sitecustomize False\n") || len(ps) != 1 {
			t.Errorf("%s: %q, %d processes", python, out, len(ps))
		}
		files["sitecustomize.py"] = "raise ValueError('its own')"
		_, out, ps = run(t, files, python, "-c", "pass")
		if !strings.Contains(out, "its own") || len(ps) != 1 || ps[0].Group != Closed {
			t.Errorf("%s: %q, %+v", python, out, ps)
		}
	}
}

// The probe reports the arguments of a process whatever they hold.
func TestProbeQuotes(t *testing.T) {
	arg := "\"\\\n\x1b[31m é 😀"
	for _, python := range pythons(t) {
		_, out, ps := run(t, nil, python, "-c", "pass", arg)
		if len(ps) != 1 || ps[0].Argv[len(ps[0].Argv)-1] != arg || out != "" {
			t.Errorf("%s: %+v, output %q", python, ps, out)
		}
	}
}

var torchPython = flag.String("python", "/usr/bin/python3", "the `interpreter` with PyTorch and pytest to test against")

// With real PyTorch on gloo: launchers, pytest and scripts.
func TestProbeTorch(t *testing.T) {
	python := *torchPython
	if exec.Command(python, "-c", "import torch.distributed as d; assert d.is_gloo_available() if hasattr(d, 'is_gloo_available') else d.is_available()").Run() != nil {
		missing(t, python+" has no PyTorch")
	}
	const worker = `
import os, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
def work(rank, port, destroy):
    if port:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        dist.init_process_group("gloo", rank=rank, world_size=2)
    else:
        dist.init_process_group("gloo")
    t = torch.ones(1); dist.all_reduce(t); assert t.item() == 2
    if destroy: dist.destroy_process_group()
def port():
    import socket
    s = socket.socket(); s.bind(("127.0.0.1", 0)); return str(s.getsockname()[1])
`
	// PyTorch 1.13 may abort in a process that leaves its group open, and the
	// others must not be ended for that.
	const spawn = `
def spawn(*args):
    context = mp.spawn(work, args, nprocs=2, join=False)
    for p in context.processes: p.join()
`
	files := map[string]string{
		"worker.py":  worker,
		"spawn.py":   worker + spawn + "if __name__ == '__main__': spawn(port(), 'destroy' in sys.argv)\n",
		"script.py":  worker + "work(int(os.environ['RANK']), None, 'destroy' in sys.argv)\n",
		"test_it.py": worker + "def test_it():\n    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=port())\n    dist.init_process_group('gloo', rank=0, world_size=1)\n",
		"loader.py": worker + "os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=port())\ndist.init_process_group('gloo', rank=0, world_size=1)\n" +
			"from torch.utils.data import DataLoader\nassert len(list(DataLoader(range(4), num_workers=2))) == 4\ndist.destroy_process_group()\n",
	}
	// Without --redirects and --tee, PyTorch 1.13's torchrun fails on Python 3.11.
	torchrun := []string{python, "-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv_backend=c10d",
		"--rdzv_endpoint=127.0.0.1:0", "--redirects=1", "--tee=1", "--log_dir=logs"}
	for _, c := range []struct {
		name string
		argv []string
		want []string
	}{
		{"spawn", []string{python, "spawn.py"}, []string{"closed normal", "open normal work", "open normal work"}},
		{"spawn, destroyed", []string{python, "spawn.py", "destroy"}, []string{"closed normal", "closed normal work", "closed normal work"}},
		{"torchrun", append(torchrun, "script.py"), []string{"closed normal", "open normal", "open normal"}},
		{"torchrun, destroyed", append(torchrun, "script.py", "destroy"), []string{"closed normal", "closed normal", "closed normal"}},
		{"pytest", []string{python, "-m", "pytest", "-q", "test_it.py"}, []string{"open normal"}},
		{"DataLoader", []string{python, "loader.py"}, []string{"closed normal", "closed normal _worker_loop", "closed normal _worker_loop"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, out, ps := run(t, files, c.argv...)
			ps = slices.DeleteFunc(ps, func(p Process) bool { return strings.Contains(strings.Join(p.Argv, " "), "resource_tracker") })
			if d := cmp.Diff(c.want, summary(ps)); d != "" {
				t.Errorf("(-want +got):\n%s\n%s\n%+v", d, out, ps)
			}
			for _, p := range ps {
				if (p.Group == Open) != (p.Backend == "gloo" && p.Rank >= 0) {
					t.Errorf("%+v: backend and rank do not fit", p)
				}
			}
		})
	}
}

func TestReadWithoutRecords(t *testing.T) {
	dir := t.TempDir()
	if _, err := Install(dir); err != nil {
		t.Fatal(err)
	}
	if ps, err := Read(dir); len(ps) != 0 || err != nil {
		t.Errorf("Read = %v, %v", ps, err)
	}
	bad := filepath.Join(dir, recordsDir, "1.jsonl")
	if err := os.WriteFile(bad, []byte("{\"event\":\"start\",\"pid\":1}\n{\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "1.jsonl") {
		t.Errorf("Read of a damaged record: %v", err)
	}
}
