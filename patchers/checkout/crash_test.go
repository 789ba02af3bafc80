package checkout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
)

// TestMain turns the test binary into a program that does to the tree in the
// first argument what the second says, and kills itself at the step in the third.
func TestMain(m *testing.M) {
	if os.Getenv("CHECKOUT_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	c, err := Open(os.Args[1])
	if err == nil {
		stop, _ := strconv.Atoi(os.Args[3])
		c.tree.before = func(string, string) error {
			if stop--; stop == 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			return nil
		}
		err = act(c, os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// act does one of what can be interrupted.
func act(c *Checkout, what string) error {
	err := error(nil)
	switch ctx := context.Background(); what {
	case "write 50":
		_, err = c.Write(ctx, bigSet())
	case "write":
		_, err = c.Write(ctx, smallSet())
	case "undo":
		_, err = c.Undo(ctx, "")
	case "recover":
		_, err = c.Recover()
	}
	return err
}

// smallSet has one of each kind of change.
func smallSet() *patchers.ChangeSet {
	executable := modify("c.sh", "c", "c")
	executable.Mode = 0o755
	return setOf(modify("a.py", "a", "A"), executable, remove("d/gone.py", "g"), create("n/e/w.py", "w"))
}

func bigSet() *patchers.ChangeSet {
	var files []patchers.FileChange
	for i := range 50 {
		name := fmt.Sprintf("p%d/f%02d.py", i%7, i)
		switch old := fmt.Sprintf("# %d\n", i); {
		case i%10 == 0:
			files = append(files, create("new/"+name, old))
		case i%10 == 1:
			files = append(files, remove(name, old))
		default:
			files = append(files, modify(name, old, old+"destroy()\n"))
		}
	}
	return setOf(files...)
}

// A crashTree is a tree that is written again and again.
type crashTree struct {
	dir      string
	files    map[string]string
	old, new map[string]string // snapshots
	steps    map[string]int    // of each action that is not interrupted
}

func newCrashTree(t *testing.T, set *patchers.ChangeSet, write string) *crashTree {
	t.Helper()
	// A process that is killed loses nothing that it wrote, on a disk or in
	// memory, where writing safely takes no time.
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm")
	}
	files := map[string]string{"untouched.py": "u"}
	for _, f := range set.Files {
		if f.Op != patchers.Create {
			files[f.Path] = string(f.Old)
		}
	}
	ct := &crashTree{dir: newTree(t, files), files: files, steps: map[string]int{}}
	ct.old = snapshot(t, ct.dir)
	for _, what := range []string{write, "undo"} {
		c := open(t, ct.dir)
		c.tree.before = func(string, string) error { ct.steps[what]++; return nil }
		if err := act(c, what); err != nil {
			t.Fatal(err)
		}
		if what == write {
			ct.new = snapshot(t, ct.dir)
		}
	}
	wantTree(t, ct.dir, ct.old)
	return ct
}

// reset makes the tree old, or new by an undoable write.
func (ct *crashTree) reset(t *testing.T, write string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(os.Getenv("XDG_STATE_HOME")), os.RemoveAll(ct.dir), os.Mkdir(ct.dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, ct.dir, ct.files)
	if write != "" {
		if err := act(open(t, ct.dir), write); err != nil {
			t.Fatal(err)
		}
	}
}

// wantWhole recovers and checks that the tree is wholly old or wholly new, that
// the journal agrees and that the tree can be written.
func (ct *crashTree) wantWhole(t *testing.T, write string) (isNew bool) {
	t.Helper()
	c := open(t, ct.dir)
	r, err := c.Recover()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Left) > 0 {
		t.Errorf("left %v", r.Left)
	}
	if r, err := c.Recover(); err != nil || r.ID != "" {
		t.Errorf("second Recover = %v, %v", r, err)
	}
	got := snapshot(t, ct.dir)
	isNew = cmp.Equal(ct.new, got)
	if !isNew && !cmp.Equal(ct.old, got) {
		t.Fatalf("neither old nor new (-old +got):\n%s", cmp.Diff(ct.old, got))
	}
	next, want := write, ct.new
	if isNew {
		next, want = "undo", ct.old
	}
	if err := act(c, next); err != nil {
		t.Fatalf("%s afterwards: %v", next, err)
	}
	wantTree(t, ct.dir, want)
	return isNew
}

// child runs the test binary as a program of its own.
func (ct *crashTree) child(t *testing.T, what string, step int) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, ct.dir, what, strconv.Itoa(step))
	// The race detector would sleep for a second at the end.
	cmd.Env = append(os.Environ(), "CHECKOUT_TEST_CHILD=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}

// killed reports whether err says that the process was killed. It fails the test
// if the process ended in another way, but for success.
func killed(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		return false
	}
	if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("child: %v", err)
	}
	return true
}

// The process is killed at many steps of a write of 50 files and of its undo.
func TestKilledAtSteps(t *testing.T) {
	ct := newCrashTree(t, bigSet(), "write 50")
	for what, before := range map[string]string{"write 50": "", "undo": "write 50"} {
		steps := ct.steps[what]
		seen := map[bool]int{}
		for step := 1; step <= steps; step += 1 + steps/40 {
			ct.reset(t, before)
			if !killed(t, ct.child(t, what, step).Run()) {
				t.Fatalf("%s lived through step %d of %d", what, step, steps)
			}
			seen[ct.wantWhole(t, "write 50")]++
		}
		ct.reset(t, before)
		if !killed(t, ct.child(t, what, steps).Run()) {
			t.Fatalf("%s lived through its last step", what)
		}
		seen[ct.wantWhole(t, "write 50")]++
		t.Logf("%s, %d steps: %d times new, %d times old", what, steps, seen[true], seen[false])
		if len(seen) != 2 {
			t.Errorf("%s never ended the other way", what)
		}
	}
}

// The process is killed at any time, also in the middle of a system call.
func TestKilledAtRandom(t *testing.T) {
	ct := newCrashTree(t, bigSet(), "write 50")
	kills := 0
	whole := time.Second // how long a child takes that is not killed
	for range 30 {
		ct.reset(t, "")
		cmd := ct.child(t, "write 50", 0)
		start := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(rand.N(whole), func() { cmd.Process.Kill() })
		if killed(t, cmd.Wait()) {
			kills++
		} else {
			whole = time.Since(start)
		}
		timer.Stop()
		ct.wantWhole(t, "write 50")
	}
	t.Logf("%d of 30 processes were killed in time", kills)
	if kills == 0 {
		t.Error("no process was killed in time")
	}
}

// interrupted is what stops an action without any of its cleaning up.
type interrupted struct{}

// interrupt does what until the given step, as if the process were killed there.
func (ct *crashTree) interrupt(t *testing.T, what string, step int) (stopped bool) {
	t.Helper()
	c := open(t, ct.dir)
	c.tree.before = func(string, string) error {
		if step--; step == 0 {
			panic(interrupted{})
		}
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			if p != (interrupted{}) {
				panic(p)
			}
			stopped = true
		}
	}()
	if err := act(c, what); err != nil {
		t.Fatal(err)
	}
	return false
}

// Every step of writing and undoing can be the last, and so can every fifth of
// recovering from that, another fifth each time.
func TestInterruptedAnywhere(t *testing.T) {
	ct := newCrashTree(t, smallSet(), "write")
	for what, before := range map[string]string{"write": "", "undo": "write"} {
		for step := range ct.steps[what] {
			for again := 1 + step%5; ; again += 5 {
				ct.reset(t, before)
				if !ct.interrupt(t, what, step+1) {
					t.Fatalf("%s has no step %d", what, step+1)
				}
				stopped := ct.interrupt(t, "recover", again)
				isNew := ct.wantWhole(t, "write")
				if committed := step+1 == ct.steps[what]; isNew != (committed == (what == "write")) {
					t.Errorf("%s, stopped at step %d of %d: new %v", what, step+1, ct.steps[what], isNew)
				}
				if !stopped {
					break
				}
			}
		}
	}
}

// An error at any step leaves the tree as it was, and leaves nothing behind.
func TestFailingAnywhere(t *testing.T) {
	ct := newCrashTree(t, smallSet(), "write")
	for what, before := range map[string]string{"write": "", "undo": "write"} {
		want := ct.old
		if what == "undo" {
			want = ct.new
		}
		for step := range ct.steps[what] {
			ct.reset(t, before)
			c := open(t, ct.dir)
			n, failed := 0, ""
			c.tree.before = func(op, name string) error {
				if n++; n == step+1 {
					failed = op + " " + name
					return &fs.PathError{Op: op, Path: name, Err: syscall.EIO}
				}
				return nil
			}
			err := act(c, what)
			if strings.HasPrefix(failed, "remove n") && !strings.HasSuffix(failed, ".py") {
				if err != nil {
					t.Errorf("a folder that stays is an error: %v", err)
				}
				continue
			}
			wantError(t, err, "input/output error")
			wantTree(t, ct.dir, want)
			ct.wantWhole(t, "write")
		}
	}
}

// While the disk is full nothing can be made or grow, but renaming works.
func TestFullAnywhere(t *testing.T) {
	ct := newCrashTree(t, smallSet(), "write")
	for step := range ct.steps["write"] {
		ct.reset(t, "")
		c := open(t, ct.dir)
		n := 0
		c.tree.before = func(op, name string) error {
			if n++; n > step && slices.Contains([]string{"create", "write", "mkdir"}, op) {
				return &fs.PathError{Op: op, Path: name, Err: syscall.ENOSPC}
			}
			return nil
		}
		if err := act(c, "write"); err == nil {
			wantTree(t, ct.dir, ct.new) // all was made when the disk got full
		} else {
			wantError(t, err, "no space left on device")
			wantTree(t, ct.dir, ct.old)
		}
	}
}

// What changed after an interruption is left, with its old bytes kept.
func TestRecoverLeavesChanges(t *testing.T) {
	dir := newTree(t, map[string]string{"a.py": "a", "b.py": "b", "c.py": "c"})
	c := open(t, dir)
	c.tree.before = func(op, name string) error {
		if op == "sync" && name == "." {
			if _, err := os.Stat(dir + "/new.py"); err == nil {
				panic(interrupted{})
			}
		}
		return nil
	}
	func() {
		defer func() {
			if recover() != (interrupted{}) {
				t.Fatal("not interrupted")
			}
		}()
		c.Write(context.Background(), setOf(modify("a.py", "a", "A"), modify("b.py", "b", "B"), modify("c.py", "c", "C"), create("new.py", "n")))
	}()
	writeFiles(t, dir, map[string]string{"b.py": "mine", "new.py": "mine"})
	if err := errors.Join(os.Remove(dir+"/c.py"), os.Mkdir(dir+"/c.py", 0o755)); err != nil {
		t.Fatal(err)
	}
	c = open(t, dir)

	// A write finds the interruption too, and refuses as its caller's view is old.
	// Here the process that was interrupted left it to Recover.
	r, err := c.Recover()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a.py"}, r.Files); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	var left []string
	for _, l := range r.Left {
		old := ""
		if l.Old != "" {
			data, err := os.ReadFile(l.Old)
			if err != nil {
				t.Fatal(err)
			}
			old = string(data)
		}
		left = append(left, l.Path+" "+old)
	}
	if d := cmp.Diff([]string{"b.py b", "c.py c", "new.py "}, left); d != "" {
		t.Errorf("left (-want +got):\n%s", d)
	}
	got := snapshot(t, dir)
	names := slices.Sorted(maps.Keys(got))
	if d := cmp.Diff([]string{"", "/a.py", "/b.py", "/c.py", "/new.py"}, names); d != "" {
		t.Errorf("names (-want +got):\n%s", d)
	}
	if got["/b.py"] != "-rw-r--r-- mine" || got["/a.py"] != "-rw-r--r-- a" {
		t.Errorf("tree %v", got)
	}
	if _, err := c.Write(context.Background(), setOf(modify("b.py", "mine", "b"))); err != nil {
		t.Errorf("writing afterwards: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(r.Left[0].Old)); err != nil {
		t.Error(err)
	}
}

// Who did not call Recover is told to look again.
func TestWriteRecoversFirst(t *testing.T) {
	ct := newCrashTree(t, smallSet(), "write")
	for _, what := range []string{"write", "undo"} {
		ct.reset(t, "")
		if !ct.interrupt(t, "write", ct.steps["write"]-3) {
			t.Fatal("not interrupted")
		}
		err := act(open(t, ct.dir), what)
		wantError(t, err, "refusing to write to "+ct.dir+": an interrupted write was put back just now; run again")
		wantTree(t, ct.dir, ct.old)
	}
}
