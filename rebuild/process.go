package rebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	grace   = 10 * time.Second // between asking a process group to end and making it
	drain   = 2 * time.Second  // for what is left of its output
	maxLine = 64 << 10         // longer lines are cut where they are shown
	keep    = 20               // last lines that are remembered
)

// A command is one program to run.
type command struct {
	argv []string
	dir  string
	env  []string
}

// run runs the command in a session of its own, without input. What it prints
// goes to log as it is and to the screen line by line. If ctx ends or log cannot
// be written, the process group is asked to end, and after some time made to; the
// error is then the cause of ctx or that of the log. When run returns, nothing of
// the session is left; on systems without /proc, of the process group.
func (c command) run(ctx context.Context, log io.Writer, s *screen) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	path := lookPath(c.argv[0], lookupEnv(c.env, "PATH"))
	if path == "" {
		return fmt.Errorf("running %s: it is not on PATH", c.argv[0])
	}
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := &exec.Cmd{
		Path: path, Args: c.argv, Dir: c.dir, Env: c.env,
		Stdout: in, Stderr: in,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	in.Close()
	if err != nil {
		return fmt.Errorf("running %s: %w", c.argv[0], err)
	}
	session := cmd.Process.Pid

	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if _, err := io.Copy(io.MultiWriter(log, s), out); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel(fmt.Errorf("writing the log: %w", err))
		}
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	select {
	case err = <-ended:
	case <-ctx.Done():
		syscall.Kill(-session, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(grace):
			end(session)
			<-ended
		}
	}
	end(session) // what stayed in the background
	out.SetReadDeadline(time.Now().Add(drain))
	<-copied
	s.flush()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// end ends the processes of a session: the group that began it, and those that
// programs such as ninja and shells with job control make for their children.
func end(session int) {
	syscall.Kill(-session, syscall.SIGKILL)
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended by itself
		}
		// The name of the program, in parentheses, may hold anything.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) > 3 && fields[3] == strconv.Itoa(session) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// lookupEnv returns a variable of env, which is as package os has it, or "".
func lookupEnv(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// A screen takes a program's output apart into lines. Carriage returns end lines,
// too, because progress bars are made with them.
type screen struct {
	line    func(line string, percent int) // called for each line; percent is -1 if it has none
	partial []byte
	last    []string
}

func (s *screen) Write(p []byte) (int, error) {
	n := len(p)
	for {
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			break
		}
		s.add(p[:i])
		s.flush()
		p = p[i+1:]
	}
	s.add(p)
	return n, nil
}

func (s *screen) add(p []byte) {
	s.partial = append(s.partial, p[:min(len(p), maxLine-len(s.partial))]...)
}

// flush ends the line.
func (s *screen) flush() {
	line := strings.TrimRight(string(s.partial), " \t")
	s.partial = s.partial[:0]
	if line == "" {
		return
	}
	s.last = append(s.last[max(0, len(s.last)-keep+1):], line)
	s.line(line, percent(line))
}

var (
	makePercent = regexp.MustCompile(`^\[ *(\d{1,3})%\]`)
	ninjaCount  = regexp.MustCompile(`^\[(\d{1,9})/(\d{1,9})\]`)
)

// percent returns how much of a build is done by a line of make or ninja, or -1.
func percent(line string) int {
	if m := makePercent.FindStringSubmatch(line); m != nil {
		n, _ := strconv.Atoi(m[1])
		return min(n, 100)
	}
	if m := ninjaCount.FindStringSubmatch(line); m != nil {
		done, _ := strconv.Atoi(m[1])
		all, _ := strconv.Atoi(m[2])
		if all > 0 && done <= all {
			return 100 * done / all
		}
	}
	return -1
}
