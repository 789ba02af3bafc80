// Package verify runs a checkout's tests and judges the result: do they pass
// without a warning at the exit, does every process destroy its group, is the
// bandwidth held, and is a run like the one before it.
//
// It changes nothing in the checkout, but runs its code.
package verify

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ncclfix/rebuild/ncclog"
	"ncclfix/rebuild/verify/probe"
)

// A Config says what to run and how to judge it.
type Config struct {
	Command []string // the program and its arguments
	Dir     string   // where it runs
	Runs    int      // at least 1

	// Timeout is for each run; 0 is none. A run that takes longer is ended, with
	// all its processes, and fails.
	Timeout time.Duration

	// MinRatio is the least median bandwidth, relative to the baseline's.
	MinRatio float64

	// Baseline is compared with. Its tree, if it has one, is run as often as the
	// checkout, in turns.
	Baseline *Baseline

	// Valgrind adds one run under valgrind, which nothing else is measured on.
	Valgrind bool

	// SharedMemory is the folder of shared memory segments; "" is /dev/shm.
	SharedMemory string

	// Logs is a folder that takes the output of each run: run-1.log, base-1.log.
	Logs string

	// Started and Ended, if not nil, are told of each run.
	Started func(label string)
	Ended   func(Run)
}

// A Run is one run of the command.
type Run struct {
	Label    string  `json:"label"` // "run 1", "base 1"
	Log      string  `json:"-"`     // the file with its output
	Status   int     `json:"status"`
	Signal   string  `json:"signal,omitempty"` // that ended it; then Status is -1
	TimedOut bool    `json:"timedOut,omitempty"`
	Seconds  float64 `json:"seconds"`

	Output    *ncclog.Report  `json:"output"`
	Processes []probe.Process `json:"processes"`

	PeakRSS   int64    `json:"peakRSS"`             // bytes, of the largest process; at least about what ncclfix needs itself
	GPUMemory *int64   `json:"gpuMemory,omitempty"` // bytes in use on all GPUs after the run
	Segments  []string `json:"segments,omitempty"`  // left in shared memory, nobody's any more
	Survivors []Holder `json:"survivors,omitempty"` // still running, from this run or one before it
}

// A Holder is a process that outlived its run.
type Holder struct {
	PID         int    `json:"pid"`
	Command     string `json:"command"`
	Descriptors int    `json:"descriptors"` // open; -1 if that cannot be seen
}

// A Report is what the runs came to.
type Report struct {
	Version     int       `json:"version"` // of this form: 1
	Command     []string  `json:"command"`
	Dir         string    `json:"dir"`
	Started     time.Time `json:"started"`
	Wanted      int       `json:"wanted"` // runs that were asked for
	Interrupted bool      `json:"interrupted,omitempty"`
	Baseline    string    `json:"baseline,omitempty"`
	MinRatio    float64   `json:"minRatio"`

	Checks []Check `json:"checks"`
	Passed bool    `json:"passed"` // no check failed and all runs were made

	Bandwidth    []Comparison `json:"bandwidth,omitempty"`
	Runs         []Run        `json:"runs"`
	BaselineRuns []Run        `json:"baselineRuns,omitempty"`
	Valgrind     *Memcheck    `json:"valgrind,omitempty"`
}

// Execute makes the runs and judges them. If ctx ends, what still runs is ended
// and the report holds the runs that came to their end before; that is no error.
// An error means that the command could not be run at all.
func Execute(ctx context.Context, cfg Config) (*Report, error) {
	r := &Report{
		Version: 1, Command: cfg.Command, Dir: cfg.Dir, Started: time.Now().UTC().Truncate(time.Second),
		Wanted: cfg.Runs, MinRatio: cfg.MinRatio,
	}
	temp, err := os.MkdirTemp("", "ncclfix-verify-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	s := &session{cfg: cfg, temp: temp}
	defer s.endSurvivors()
	if cfg.Baseline != nil {
		r.Baseline = cfg.Baseline.Name
	}
	for i := range cfg.Runs {
		label := fmt.Sprintf("run %d", i+1)
		ok, err := s.run(ctx, label, cfg.Dir, cfg.Command, &r.Runs)
		if err != nil {
			return nil, err
		}
		if ok && cfg.Baseline != nil && cfg.Baseline.Dir != "" {
			ok, err = s.run(ctx, fmt.Sprintf("base %d", i+1), cfg.Baseline.Dir, cfg.Baseline.command(cfg), &r.BaselineRuns)
			if err != nil {
				return nil, err
			}
		}
		if !ok {
			r.Interrupted = true
			break
		}
	}
	if cfg.Valgrind && !r.Interrupted {
		if r.Valgrind, err = s.memcheck(ctx); err != nil {
			return nil, err
		}
		r.Interrupted = ctx.Err() != nil
	}
	r.judge(cfg.Baseline)
	return r, nil
}

// A session is what one Execute needs from run to run.
type session struct {
	cfg     Config
	temp    string
	markers []string // records folders of the runs so far; each names the processes of its run
}

// run makes one run and appends it to runs. It reports false if ctx ended
// meanwhile; then nothing is appended.
func (s *session) run(ctx context.Context, label, dir string, argv []string, runs *[]Run) (bool, error) {
	if ctx.Err() != nil {
		return false, nil
	}
	if s.cfg.Started != nil {
		s.cfg.Started(label)
	}
	name := strings.ReplaceAll(label, " ", "-")
	probeDir := filepath.Join(s.temp, name)
	env, err := probe.Install(probeDir)
	if err != nil {
		return false, err
	}
	s.markers = append(s.markers, env[len(env)-1])
	logName := filepath.Join(s.cfg.Logs, name+".log")
	log, err := os.Create(logName)
	if err != nil {
		return false, err
	}
	defer log.Close()
	var parser ncclog.Parser
	shm := cmp.Or(s.cfg.SharedMemory, "/dev/shm")
	before := segments(shm)
	o, err := execute(ctx, program{argv: argv, dir: dir, env: environment(env), marker: s.markers[len(s.markers)-1], timeout: s.cfg.Timeout}, io.MultiWriter(log, &parser))
	if err != nil || ctx.Err() != nil {
		return false, err
	}
	r := Run{
		Label: label, Log: logName, Status: o.status, Signal: o.signal, TimedOut: o.timedOut,
		Seconds: o.seconds, PeakRSS: o.peakRSS, Output: parser.Report(),
	}
	r.Survivors = survivors(ctx, s.markers)
	if r.Processes, err = probe.Read(probeDir); err != nil {
		return false, err
	}
	r.Segments = abandoned(shm, before)
	r.GPUMemory = gpuMemory(ctx)
	*runs = append(*runs, r)
	if s.cfg.Ended != nil {
		s.cfg.Ended(r)
	}
	return ctx.Err() == nil, nil
}

// endSurvivors ends the processes that outlived their runs. They were measured
// from run to run, so they could not be ended before.
func (s *session) endSurvivors() {
	for _, m := range s.markers {
		endMarked(m)
	}
}

// environment is this process's, with the probe's entries and what a faithful log
// needs: NCCL's warnings, and output in the order in which it is printed. What is
// set already stays.
func environment(entries []string) []string {
	env := os.Environ()
	for _, d := range []string{"NCCL_DEBUG=WARN", "PYTHONUNBUFFERED=1"} {
		name, _, _ := strings.Cut(d, "=")
		if _, set := os.LookupEnv(name); !set {
			env = append(env, d)
		}
	}
	return append(env, entries...)
}
