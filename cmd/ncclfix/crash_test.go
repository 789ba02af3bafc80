package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Killed at any point of a fix of 50 files, the tree is wholly old or wholly new
// after the next command, and can be written.
func TestKilledFix(t *testing.T) {
	const kills = 30
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	old := map[string]string{}
	for i := range 50 {
		name := fmt.Sprintf("train%02d.py", i)
		old[name] = fmt.Sprintf("import torch.distributed as dist\n\ndist.init_process_group(\"nccl\")\nprint(%d)\n", i)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(old[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	read := func() map[string]string {
		tree := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			tree[e.Name()] = string(data)
		}
		return tree
	}
	start := func(args ...string) *exec.Cmd {
		cmd := exec.Command("ncclfix", args...)
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	must := func(args ...string) {
		t.Helper()
		if err := start(args...).Wait(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
	}

	began := time.Now()
	must("fix", "--yes")
	took := time.Since(began)
	new := read()
	must("undo", "--yes")
	if d := cmp.Diff(old, read()); d != "" {
		t.Fatalf("undo (-want +got):\n%s", d)
	}

	killed := 0
	for i := range kills {
		cmd := start("fix", "--yes")
		time.Sleep(took * time.Duration(i+1) / kills)
		cmd.Process.Kill()
		cmd.Wait()
		if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			killed++
		}
		var exit *exec.ExitError
		if err := start("check").Wait(); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
			t.Fatalf("check after kill %d: %v", i, err)
		}
		switch tree := read(); {
		case cmp.Equal(tree, old):
		case cmp.Equal(tree, new):
			must("undo", "--yes")
		default:
			t.Fatalf("after kill %d the tree is neither old nor new (-old +got):\n%s", i, cmp.Diff(old, tree))
		}
	}
	if killed == 0 {
		t.Error("no kill came before the end of a fix")
	}
	must("fix", "--yes")
	if d := cmp.Diff(new, read()); d != "" {
		t.Errorf("a last fix (-want +got):\n%s", d)
	}
}
