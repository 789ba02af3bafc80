package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	grace  = 5 * time.Second        // between asking a run's processes to end and making them
	drain  = 2 * time.Second        // for what is left of a run's output
	settle = 300 * time.Millisecond // for segments to go with the processes that had them
	linger = 3 * time.Second        // for helper processes to follow their parent
)

// A program is one command to run.
type program struct {
	argv    []string
	dir     string
	env     []string
	marker  string        // an entry of env that no other program has
	timeout time.Duration // 0 is none
}

// An outcome is how a program ended.
type outcome struct {
	status   int // -1 if a signal ended it
	signal   string
	timedOut bool
	seconds  float64
	peakRSS  int64 // bytes, of the largest process that was waited for
}

// execute runs p in a session of its own, without input. If ctx ends or the time is
// up, all its processes are ended. What it leaves running otherwise is left alone.
// An error means that it did not start.
func execute(ctx context.Context, p program, output io.Writer) (outcome, error) {
	if p.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.timeout)
		defer cancel()
	}
	out, in, err := os.Pipe()
	if err != nil {
		return outcome{}, err
	}
	defer out.Close()
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, p.env, in, in
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	start := time.Now()
	err = cmd.Start()
	in.Close()
	if err != nil {
		return outcome{}, fmt.Errorf("running %q: %w", p.argv[0], cause(err))
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(output, out)
		copied <- err
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var o outcome
	select {
	case <-ended:
	case <-ctx.Done():
		o.timedOut = errors.Is(ctx.Err(), context.DeadlineExceeded)
		signalGroup(cmd.Process.Pid, p.marker, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(grace):
		}
		signalGroup(cmd.Process.Pid, p.marker, syscall.SIGKILL)
		if cmd.ProcessState == nil {
			<-ended
		}
	}
	o.seconds = time.Since(start).Seconds()
	out.SetReadDeadline(time.Now().Add(drain))
	if err := <-copied; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return outcome{}, fmt.Errorf("keeping the output: %w", err)
	}
	o.status = cmd.ProcessState.ExitCode()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		o.signal = ws.Signal().String()
	}
	o.peakRSS = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	if runtime.GOOS != "darwin" { // there it is in bytes
		o.peakRSS <<= 10
	}
	return o, nil
}

// cause takes off what os/exec puts around an error.
func cause(err error) error {
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err
	}
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// signalGroup signals the session that pid leads and those of its processes that
// have left it.
func signalGroup(pid int, marker string, sig syscall.Signal) {
	syscall.Kill(-pid, sig)
	for _, p := range marked(marker) {
		syscall.Kill(p, sig)
	}
}

// endMarked makes the processes with the marker end.
func endMarked(marker string) {
	for _, p := range marked(marker) {
		syscall.Kill(p, syscall.SIGKILL)
	}
}

// marked returns the live processes whose environment was started with the entry
// marker. Without /proc there are none to be seen.
func marked(marker string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	want := []byte("\x00" + marker + "\x00")
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(append([]byte{0}, env...), want) && !zombie(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// zombie reports whether a process has ended and only waits to be asked how.
func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return len(state) > 0 && (state[0] == 'Z' || state[0] == 'X')
}

// survivors returns the processes of the runs with the markers that still run.
// Those that are about to follow their parent get a moment to do so.
func survivors(ctx context.Context, markers []string) []Holder {
	deadline := time.Now().Add(linger)
	last := markers[len(markers)-1]
	for len(marked(last)) > 0 && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	var holders []Holder
	for _, m := range markers {
		for _, pid := range marked(m) {
			argv, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			h := Holder{PID: pid, Command: strings.ReplaceAll(strings.TrimRight(string(argv), "\x00"), "\x00", " "), Descriptors: -1}
			if fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err == nil {
				h.Descriptors = len(fds)
			}
			holders = append(holders, h)
		}
	}
	return holders
}

// segments returns the files in dir, where shared memory is, that are this user's,
// by path, with their inodes.
func segments(dir string) map[string]uint64 {
	found := map[string]uint64{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return found
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Getuid() {
				found[filepath.Join(dir, e.Name())] = st.Ino
			}
		}
	}
	return found
}

// abandoned returns the segments in dir that came since before was looked at and
// that no process has open or mapped. Those in use belong to somebody, or to a
// survivor. Who made the others cannot be told.
func abandoned(dir string, before map[string]uint64) []string {
	fresh := map[uint64]string{}
	for name, inode := range segments(dir) {
		if before[name] != inode {
			fresh[inode] = name
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, l := range links {
		if to, err := os.Readlink(l); err != nil || !strings.HasPrefix(to, dir) {
			continue
		}
		if info, err := os.Stat(l); err == nil {
			delete(fresh, info.Sys().(*syscall.Stat_t).Ino)
		}
	}
	// A semaphore is mapped under the name it was made with, so the inode counts.
	mapped, _ := filepath.Glob("/proc/[0-9]*/maps")
	for _, m := range mapped {
		data, err := os.ReadFile(m)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(data) {
			if f := bytes.Fields(line); len(f) > 5 && strings.HasPrefix(string(f[5]), dir) {
				inode, _ := strconv.ParseUint(string(f[4]), 10, 64)
				delete(fresh, inode)
			}
		}
	}
	// What another program's end takes away now is not this run's.
	time.Sleep(settle)
	var names []string
	for name, inode := range segments(dir) {
		if fresh[inode] == name {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// gpuMemory returns the bytes in use on all GPUs, or nil if nvidia-smi is missing
// or does not answer.
func gpuMemory(ctx context.Context) *int64 {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return nil
	}
	var sum int64
	for _, f := range strings.Fields(string(out)) {
		mib, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil
		}
		sum += mib << 20
	}
	return &sum
}
