package doctor

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tools makes programs for PATH, which then holds nothing else but a shell.
func tools(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/bin/sh", filepath.Join(dir, "sh")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX", "NVSHMEM_DIR", "NVSHMEM_SRC", "NVSHMEM_HOME", "NVSHMEM_USE_NCCL", "NCCL_HOME", "NCCL_DIR",
		"CUDA_HOME", "GDRCOPY_HOME", "LD_LIBRARY_PATH", "LD_PRELOAD"} {
		t.Setenv(name, "") // puts the old value back afterwards
		os.Unsetenv(name)
	}
}

func find(t *testing.T, r *Report, name string) Item {
	t.Helper()
	for _, i := range r.Items {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("no item %q in %+v", name, r.Items)
	return Item{}
}

func TestBareMachine(t *testing.T) {
	tools(t, nil)
	start := time.Now()
	r := Examine(t.Context(), Options{Dir: t.TempDir()})
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("took %s", took)
	}
	if !r.Failed() {
		t.Errorf("nothing fails: %+v", r.Items)
	}
	for _, name := range []string{"Python", "GPUs", "NVSHMEM"} {
		if i := find(t, r, name); !strings.Contains(i.Found, "not found") || i.Verdict == OK || i.Fix == "" {
			t.Errorf("%+v", i)
		}
	}
}

func TestGoodMachine(t *testing.T) {
	nvshmem := t.TempDir()
	for name, text := range map[string]string{
		"include/nvshmem.h": "", "lib/libnvshmem_host.so.3": "",
		"include/non_abi/nvshmem_build_options.h": "#define NVSHMEM_IBGDA_SUPPORT\n/* #undef NVSHMEM_USE_NCCL */\n",
	} {
		path := filepath.Join(nvshmem, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tools(t, map[string]string{
		"python3": `echo '{"executable": "/usr/bin/python3", "version": "3.11.2", "installed": {"torch": "2.11.0+cu130", "pytest": "9.1.1", "nvidia-nccl-cu13": "2.28.9"}, "torchCUDA": "13.0"}'`,
		"nvidia-smi": `case "$*" in
*query-gpu*) echo "NVIDIA H200, 580.65"; echo "NVIDIA H200, 580.65";;
*"topo -m"*) printf '\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-47\nGPU1\tNV18\t X \t0-47\n';;
*p2p*) printf ' \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n';;
esac`,
	})
	t.Setenv("NVSHMEM_DIR", nvshmem)
	t.Setenv("LD_LIBRARY_PATH", filepath.Join(nvshmem, "lib"))
	r := Examine(t.Context(), Options{Dir: t.TempDir()})
	for name, want := range map[string]string{
		"Python": "3.11.2: /usr/bin/python3 (system, from PATH)", "PyTorch's CUDA": "13.0", "NCCL": "2.28.9 (nvidia-nccl-cu13)", "pytest": "9.1.1",
		"GPUs": "2 × NVIDIA H200, driver 580.65", "GPU links": "NVLink and peer-to-peer access",
		"NVSHMEM": nvshmem + " (from $NVSHMEM_DIR)", "NVSHMEM and NCCL": "built without NCCL: " + nvshmem + "/include/non_abi/nvshmem_build_options.h:2",
		"nvshmem.patch":             "the checkout has none",
		"loaded libnvshmem_host.so": nvshmem + "/lib/libnvshmem_host.so.3 (by LD_LIBRARY_PATH)",
	} {
		if i := find(t, r, name); i.Found != want || i.Verdict != OK || i.Fix != "" {
			t.Errorf("%+v, want %q", i, want)
		}
	}
	if i := find(t, r, "PyTorch"); i.Verdict != OK || !strings.Contains(i.Found, "fine once they are destroyed") {
		t.Errorf("%+v", i)
	}

	// The same with what goes wrong most.
	t.Setenv("LD_LIBRARY_PATH", "")
	t.Setenv("NVSHMEM_USE_NCCL", "0")
	if err := os.Remove(filepath.Join(nvshmem, "include", "nvshmem.h")); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "libnvshmem_host.so"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", other)
	t.Setenv("CUDA_HOME", "/absent")
	r = Examine(t.Context(), Options{Dir: t.TempDir()})
	for name, want := range map[string]Verdict{"NVSHMEM": Fail, "NVSHMEM_USE_NCCL": Warn, "loaded libnvshmem_host.so": Fail, "library folders": Fail} {
		if i := find(t, r, name); i.Verdict != want || i.Fix == "" {
			t.Errorf("%+v, want %s", i, want)
		}
	}
}

func TestJudgePackages(t *testing.T) {
	for _, c := range []struct {
		name, torch, cuda, nccl, pytest string
		want                            string // verdicts of PyTorch, CUDA, NCCL, pytest
	}{
		{"no torch", "", "", "", "", "fail warn"},
		{"1.13, CPU", "1.13.0a0+gitunknown", "", "", "7.2.1+really", "fail fail warn fail"},
		{"2.1", "2.1.2", "12.1", "2.18.1", "7.3.1", "ok ok ok ok"},
		{"2.4", "2.4.0", "12.4", "2.20.5", "8.0", "ok ok ok ok"},
		{"old NCCL", "2.0.1", "11.7", "2.14.3", "10.0.0", "ok ok warn ok"},
		{"NCCL inside", "2.10.0", "12.8", "", "7.3", "ok ok ok fail"},
	} {
		a := answer{TorchCUDA: c.cuda, Installed: map[string]string{"torch": c.torch, "nvidia-nccl-cu12": c.nccl, "pytest": c.pytest}}
		var got []string
		for _, i := range judgePackages(a) {
			got = append(got, string(i.Verdict))
			if (i.Verdict == OK) != (i.Fix == "") || i.Found == "" {
				t.Errorf("%s: %+v", c.name, i)
			}
		}
		if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

func TestJudge(t *testing.T) {
	for found, want := range map[string]Verdict{"1024": Fail, "1025": OK, "unlimited": OK, "not found": Fail} {
		if i := judgeDescriptors(found); i.Verdict != want {
			t.Errorf("%+v, want %s", i, want)
		}
	}
	for _, c := range []struct {
		size, free int64
		want       Verdict
	}{{64 << 20, 64 << 20, Fail}, {8 << 30, 1 << 20, Fail}, {512 << 20, 512 << 20, Warn}, {8 << 30, 8 << 30, OK}} {
		if i := judgeSharedMemory("/dev/shm", c.size, c.free); i.Verdict != c.want {
			t.Errorf("%+v, want %s", i, c.want)
		}
	}
	const pcie = "\tGPU0\tGPU1\tNUMA Affinity\nGPU0\t X \tPHB\t0\nGPU1\tPHB\t X \t0\n"
	for _, c := range []struct {
		topology, peers string
		want            []Verdict
	}{
		{pcie, " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n", []Verdict{Warn}},
		{pcie, " \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX\n", []Verdict{Fail}},
		{"\tGPU0\tCPU Affinity\nGPU0\t X \t0-3\n", " \tGPU0\n GPU0\tX\n", nil},
	} {
		var got []Verdict
		for _, i := range judgeLinks(c.topology, c.peers) {
			got = append(got, i.Verdict)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q: %s", c.topology, d)
		}
	}
}

// A tool that hangs costs its time limit, not more.
func TestToolThatHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := run(ctx, "sh", "-c", "sleep 60 & sleep 60")
	if err == nil || !strings.Contains(err.Error(), "no answer") || time.Since(start) > 5*time.Second {
		t.Errorf("%v after %s", err, time.Since(start))
	}
}

func TestReadOptions(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"include/non_abi/nvshmem_build_options.h", "#define NVSHMEM_USE_NCCL\n", "on"},
		{"include/non_abi/nvshmem_build_options.h", "#define NVSHMEM_USE_NCCL 0\n", "off"},
		{"include/non_abi/nvshmem_build_options.h", "#define NVSHMEM_USE_NCCL_NOT 1\n", "off"},
		{"CMakeCache.txt", "A:BOOL=ON\nNVSHMEM_USE_NCCL:BOOL=OFF\n", "off"},
		{"build/CMakeCache.txt", "NVSHMEM_USE_NCCL:BOOL=1\n", "on"},
		{"bin/nvshmem-info", "#!/bin/sh\necho '  Build Variables'\necho ' NVSHMEM_UCX_SUPPORT=OFF NVSHMEM_USE_NCCL=ON NVSHMEM_USE_GDRCOPY=ON'\n", "on"},
		{"bin/nvshmem-info", "#!/bin/sh\nexit 1\n", "unknown"},
		{"README", "", "unknown"},
	} {
		n := NVSHMEM{Dir: t.TempDir()}
		path := filepath.Join(n.Dir, c.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.text), 0o755); err != nil {
			t.Fatal(err)
		}
		n.readOptions(t.Context())
		got := "unknown"
		if n.UseNCCL != nil {
			got = map[bool]string{true: "on", false: "off"}[*n.UseNCCL]
		}
		if got != c.want || (n.UseNCCL != nil) != (n.Evidence != "") {
			t.Errorf("%s %q: %s (%s), want %s", c.file, c.text, got, n.Evidence, c.want)
		}
	}
}

func TestExaminePatch(t *testing.T) {
	const patch = "From 1 Mon Sep 17 00:00:00 2001\nFrom: A <a@example.com>\nSubject: [PATCH] one\n\n---\ndiff --git a/src/a.c b/src/a.c\n--- a/src/a.c\n+++ b/src/a.c\n@@ -1,2 +1,3 @@\n one\n+new\n two\n-- \n2.0\n"
	for _, c := range []struct {
		name, patch, source string
		want                Verdict
		found               string
	}{
		{"none", "", "", OK, "the checkout has none"},
		{"no source", patch, "", Warn, "no source of NVSHMEM"},
		{"applies", patch, "one\ntwo\n", Warn, "applies"},
		{"applied", patch, "one\nnew\ntwo\n", OK, "already applied"},
		{"conflict", patch, "three\n", Fail, "does not apply"},
		{"damaged", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9 +1 @@\n", "", Warn, "patch line"},
	} {
		dir := t.TempDir()
		write := func(name, text string) {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if c.patch != "" {
			write(patchPath, c.patch)
		}
		if c.source != "" {
			write("third-party/nvshmem_src/src/a.c", c.source)
		}
		if i := examinePatch(dir); i.Verdict != c.want || !strings.Contains(i.Found, c.found) {
			t.Errorf("%s: %+v, want %s and %q", c.name, i, c.want, c.found)
		}
	}
}

// The question works on a real interpreter.
func TestAsk(t *testing.T) {
	r := Examine(t.Context(), Options{Dir: t.TempDir(), Python: "/usr/bin/python3"})
	if i := find(t, r, "Python"); i.Verdict != OK || !strings.Contains(i.Found, "/usr/bin/python3") {
		if _, err := os.Stat("/usr/bin/python3"); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Errorf("%+v", i)
	}
	r = Examine(t.Context(), Options{Dir: t.TempDir(), Python: "/absent/python"})
	if i := find(t, r, "Python"); i.Verdict != Fail || i.Found != "not found (from --python)" {
		t.Errorf("%+v", i)
	}
}
