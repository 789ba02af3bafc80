package rebuild

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// need skips the test for want of something it takes, or fails it in CI, where
// everything has to be there.
func need(t *testing.T, what string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatalf("%s is needed: %v", what, err)
	default:
		t.Skipf("%s is needed: %v", what, err)
	}
}

// The real cmake, compiler, setuptools and pip build a small NVSHMEM and a small
// checkout, and the installed module says how.
func TestRealTools(t *testing.T) {
	for _, tool := range []string{"cmake", "c++", "make", "bash"} {
		_, err := exec.LookPath(tool)
		need(t, tool, err)
	}
	const python = "/usr/bin/python3"
	need(t, "python3 with setuptools, wheel and pip", exec.Command(python, "-c", "import setuptools, wheel, pip").Run())
	need(t, "Python.h", exec.Command(python, "-c", "import os, sysconfig; os.stat(sysconfig.get_path('include') + '/Python.h')").Run())

	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_STATE_HOME", dir+"/state")
	if err := os.CopyFS(dir, os.DirFS("testdata/miniature")); err != nil {
		t.Fatal(err)
	}
	// The programs python and pip are those of a virtual environment, so that
	// nothing of the system changes.
	venv := filepath.Join(dir, "venv")
	if out, err := exec.Command(python, "-m", "venv", "--without-pip", "--system-site-packages", venv).CombinedOutput(); err != nil {
		t.Fatalf("making a virtual environment: %v\n%s", err, out)
	}
	if err := os.WriteFile(venv+"/bin/pip", []byte("#!/bin/sh\nexec python -m pip \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"PATH=" + venv + "/bin:/usr/bin:/bin", "HOME=" + dir, "XDG_STATE_HOME=" + dir + "/state",
		"NVSHMEM_USE_NCCL=1", "NVSHMEM_SRC=" + dir + "/nvshmem", "PIP_NO_INDEX=1", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_CACHE_DIR=1",
	}

	rebuild := func(change func(*Options)) map[string]int {
		t.Helper()
		o := Options{Checkout: dir + "/DeepEP", Env: env, Jobs: 1}
		change(&o)
		p, err := NewPlan(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		percent := 0
		report, err := p.Run(context.Background(), RunOptions{Progress: func(p Progress) {
			if p.Step == "build" {
				percent = p.Percent
			}
		}})
		if err != nil {
			log, _ := os.ReadFile(report.Log)
			t.Fatalf("%v\n%s", err, log)
		}
		if percent != 100 {
			t.Errorf("the build ended at %d%%", percent)
		}
		if report.Interpreter != venv+"/bin/python" || len(report.Wheels) != 1 || !strings.HasPrefix(report.Wheels[0], dir+"/DeepEP/dist/mini_ep-1.0-") {
			t.Errorf("report %+v", report)
		}
		cmd := exec.Command(venv+"/bin/python", "-c", "import json, mini_ep; print(json.dumps(mini_ep.built_with()))")
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("importing: %v\n%s", err, out)
		}
		got := map[string]int{}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}

	want := map[string]int{"nccl": 0, "ibgda": 1, "mpi": 0, "cplusplus": 201103, "patched": 1}
	if d := cmp.Diff(want, rebuild(func(*Options) {})); d != "" {
		t.Errorf("built with (-want +got):\n%s", d)
	}
	// The wheel's version stays the same, and yet the module is the new one.
	want = map[string]int{"nccl": 0, "ibgda": 0, "mpi": 0, "cplusplus": 201703, "patched": 1}
	if d := cmp.Diff(want, rebuild(func(o *Options) {
		o.Set = []string{"NVSHMEM_IBGDA_SUPPORT=0"}
		o.CXXStandard = 17
		o.Prefix = dir + "/elsewhere"
	})); d != "" {
		t.Errorf("built again with (-want +got):\n%s", d)
	}
}
