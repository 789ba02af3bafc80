package rebuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ncclfix/patchers/checkout"
	"ncclfix/patchers/gitpatch"
)

// RunOptions say how to run a plan.
type RunOptions struct {
	From      string         // first step to run; "" for the first that is not done
	TimeLimit time.Duration  // for each step; 0 for none
	Progress  func(Progress) // called several times a second, never twice at once; may be nil
}

// A Progress is how far a run is.
type Progress struct {
	Step       string
	Number, Of int // of the step, from 1
	Elapsed    time.Duration
	Percent    int    // of the step, as make or ninja says it; -1 if they do not
	Line       string // the last that was printed; other people's text
	State      StepState
}

// A StepState is what becomes of a step.
type StepState int

const (
	Running  StepState = iota
	Finished           // its product is there
	Skipped            // it was there before
	Failed
)

// A Report is what a run did.
type Report struct {
	Log         string   // file with all output
	Undo        string   // id by which checkout.Undo takes the patch back in Patch.Root; "" if none was written
	Wheels      []string // that were built and installed
	Interpreter string   // for which they are installed
}

// A StepError is why a step did not make its product.
type StepError struct {
	Step string
	Err  error
	Last []string // the last lines that were printed; other people's text
}

func (e *StepError) Error() string {
	if errors.Is(e.Err, context.Canceled) {
		return fmt.Sprintf("running the %s step: interrupted", e.Step)
	}
	return fmt.Sprintf("running the %s step: %v", e.Step, e.Err)
}

func (e *StepError) Unwrap() error { return e.Err }

// Run does what the plan says, from the first step that is not done. It refuses
// if a trap is in the way, if another process runs a rebuild of the checkout, or
// if o.From is a step whose predecessors' products are not there.
//
// A step that fails is a [*StepError]. The report is then what was done so far,
// and the next Run of a plan that is the same goes on from there. The same holds
// when ctx ends, for which the process group of the step is ended first.
func (p *Plan) Run(ctx context.Context, o RunOptions) (*Report, error) {
	if i := slices.IndexFunc(p.Traps, func(t Trap) bool { return !t.Despite }); i >= 0 {
		return &Report{}, fmt.Errorf("refusing to rebuild: %s", p.Traps[i].Message)
	}
	first := 0
	if o.From != "" {
		if first = slices.IndexFunc(p.Steps, func(s Step) bool { return s.Name == o.From }); first < 0 {
			return &Report{}, fmt.Errorf("starting at step %q: the plan has only %s", o.From, strings.Join(p.stepNames(), ", "))
		}
	}
	r := &runner{plan: p, options: o, report: &Report{}}
	if err := r.open(); err != nil {
		return r.report, err
	}
	defer r.close()
	for i, s := range p.Steps {
		if err := r.step(ctx, i, s, first); err != nil {
			return r.report, err
		}
	}
	return r.report, r.forget()
}

func (p *Plan) stepNames() []string {
	var names []string
	for _, s := range p.Steps {
		names = append(names, s.Name)
	}
	return names
}

// A runner is a run under way.
type runner struct {
	plan    *Plan
	options RunOptions
	report  *Report
	lock    *os.File
	log     *os.File
	before  record // of the run that is resumed
}

// A record is what the state folder knows of a run that is not at its end.
type record struct {
	Key  string   `json:"key"`  // of the plan
	Done []string `json:"done"` // steps
}

func (r *runner) path(name string) string { return filepath.Join(r.plan.State, name) }

const keptLogs = 10

// open locks the state folder, reads its record and starts a log.
func (r *runner) open() error {
	logs := r.path("logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return fmt.Errorf("making the state folder: %w", err)
	}
	var err error
	if r.lock, err = os.OpenFile(r.path("lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("locking the state folder: %w", err)
	}
	if err := syscall.Flock(int(r.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		r.lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("refusing to rebuild %s: another ncclfix is at it", r.plan.Checkout)
		}
		return fmt.Errorf("locking %s: %w", r.lock.Name(), err)
	}
	data, err := os.ReadFile(r.path("resume.json"))
	if err == nil {
		err = json.Unmarshal(data, &r.before)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.lock.Close()
		return fmt.Errorf("reading %s: %w", r.path("resume.json"), err)
	}
	for file, text := range r.plan.Files {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			r.lock.Close()
			return fmt.Errorf("writing %s: %w", file, err)
		}
	}
	old, err := filepath.Glob(filepath.Join(escapeGlob(logs), "*.log"))
	if err == nil {
		slices.Sort(old)
		for _, file := range old[:max(0, len(old)-keptLogs+1)] {
			os.Remove(file)
		}
		r.log, err = os.OpenFile(filepath.Join(logs, time.Now().UTC().Format("20060102-150405.000")+".log"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		r.lock.Close()
		return fmt.Errorf("writing the log: %w", err)
	}
	r.report.Log = r.log.Name()
	return nil
}

func (r *runner) close() {
	r.log.Close()
	r.lock.Close()
}

// remember notes that steps are done, for a run that resumes this one.
func (r *runner) remember(done []string) error {
	r.before = record{r.plan.key, done}
	data, err := json.Marshal(r.before)
	if err != nil {
		return err
	}
	file := r.path("resume.json")
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return os.Rename(file+".new", file)
}

// forget ends what could be resumed.
func (r *runner) forget() error {
	if err := os.Remove(r.path("resume.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// step runs the i-th step, unless it is done, or stands before the first one
// that was asked for.
func (r *runner) step(ctx context.Context, i int, s Step, first int) (err error) {
	progress := &progress{of: Progress{Step: s.Name, Number: i + 1, Of: len(r.plan.Steps), Percent: -1}, to: r.options.Progress, start: time.Now()}
	asked := r.options.From != ""
	missing := r.missing(s)
	switch {
	case asked && i < first && missing != nil:
		return fmt.Errorf("refusing to start at %s: the %s step is not done: %w", r.options.From, s.Name, missing)
	case asked && i < first,
		s.Name == "patch" && missing == nil,
		!asked && missing == nil && r.before.Key == r.plan.key && slices.Contains(r.before.Done, s.Name):
		progress.end(Skipped)
		return nil
	}

	if r.options.TimeLimit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.options.TimeLimit, fmt.Errorf("the time limit of %v is over", r.options.TimeLimit))
		defer cancel()
	}
	out := &screen{line: progress.line}
	stop := progress.begin()
	err = r.do(ctx, s, out)
	stop()
	if err != nil {
		progress.end(Failed)
		return &StepError{Step: s.Name, Err: err, Last: out.last}
	}
	progress.end(Finished)
	return nil
}

// missing returns why a step is not done.
func (r *runner) missing(s Step) error {
	switch s.Name {
	case "patch":
		if state := r.plan.Patch.state; state != gitpatch.Applied {
			return fmt.Errorf("%s %s", r.plan.Patch.Path, state)
		}
		return nil
	case "configure":
		return r.configured()
	case "build":
		return r.built()
	case "clean":
		if r.before.Key != r.plan.key || !slices.Contains(r.before.Done, s.Name) {
			return fmt.Errorf("%s is of an earlier build", s.Removes[0])
		}
		return nil // what is there now is of this rebuild
	}
	return errors.New("it is never taken for done")
}

// do runs a step and looks for its product.
func (r *runner) do(ctx context.Context, s Step, out *screen) error {
	done := slices.DeleteFunc(slices.Clone(r.before.Done), func(d string) bool {
		return r.before.Key != r.plan.key || slices.Index(r.plan.stepNames(), d) >= slices.Index(r.plan.stepNames(), s.Name)
	})
	if s.Name != "install" { // which changes nothing that is remembered
		if err := r.remember(done); err != nil {
			return err
		}
	}
	env := r.plan.env.with(s.Set)
	run := func(dir string, argv ...string) error {
		if err := header(r.log, s, dir, argv); err != nil {
			return fmt.Errorf("writing the log: %w", err)
		}
		return command{argv: argv, dir: dir, env: env}.run(ctx, r.log, out)
	}
	var err error
	switch s.Name {
	case "patch":
		return r.patch(ctx)
	case "configure":
		// A variable in CMakeCache.txt counts for more than the environment.
		if err := os.RemoveAll(r.plan.build); err != nil {
			return err
		}
		if err = run(s.Dir, s.Argv...); err == nil {
			err = r.configured()
		}
	case "build":
		if err := os.Remove(r.manifest()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err = run(s.Dir, s.Argv...); err == nil {
			err = r.built()
		}
	case "clean":
		err = r.clean(s)
	case "install":
		return r.install(s, run)
	}
	if err != nil {
		return err
	}
	return r.remember(append(done, s.Name))
}

// header introduces a command in the log.
func header(log io.Writer, s Step, dir string, argv []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n# %s: %s\n# in %s\n", s.Name, s.Does, dir)
	for _, v := range s.Set {
		fmt.Fprintf(&b, "# %s=%s\n", v.Name, v.Value)
	}
	fmt.Fprintf(&b, "# %q\n\n", argv)
	_, err := io.WriteString(log, b.String())
	return err
}

// patch writes the patched files.
func (r *runner) patch(ctx context.Context) error {
	tree, err := checkout.Open(r.plan.Patch.Root)
	if err != nil {
		return err
	}
	defer tree.Close()
	r.report.Undo, err = tree.Write(ctx, r.plan.Patch.changes)
	return err
}

var ncclCached = regexp.MustCompile(`(?m)^NVSHMEM_USE_NCCL:\w+=(.*?)\r?$`)

// configured says why the build folder is not configured without NCCL.
func (r *runner) configured() error {
	cache := filepath.Join(r.plan.build, "CMakeCache.txt")
	text, err := os.ReadFile(cache)
	if err != nil {
		return fmt.Errorf("looking for what was configured: %w", err)
	}
	m := ncclCached.FindSubmatch(text)
	switch {
	case m == nil:
		return fmt.Errorf("%s does not know NVSHMEM_USE_NCCL: is %s NVSHMEM's source?", cache, r.plan.Source.Dir)
	case !off(string(m[1])):
		return fmt.Errorf("%s says NVSHMEM_USE_NCCL=%s", cache, m[1])
	}
	return nil
}

// manifest is the list of installed files, which CMake writes when it is through.
func (r *runner) manifest() string { return filepath.Join(r.plan.build, "install_manifest.txt") }

// built says why NVSHMEM is not built and installed. NVSHMEM puts its headers into
// the prefix on its own, so they are not in CMake's list (seen with 3.2.5); the
// libraries are, and both must be there.
func (r *runner) built() error {
	text, err := os.ReadFile(r.manifest())
	if err != nil {
		return fmt.Errorf("looking for what was installed: %w", err)
	}
	lib := filepath.Join(r.plan.Prefix, "lib") + string(filepath.Separator)
	if !slices.ContainsFunc(strings.Split(string(text), "\n"), func(file string) bool { return strings.HasPrefix(file, lib) }) {
		return fmt.Errorf("nothing was installed to %s, says %s", lib, r.manifest())
	}
	if missing := lacks(r.plan.Prefix); missing != "" {
		return fmt.Errorf("%s has no %s", r.plan.Prefix, missing)
	}
	return nil
}

// clean removes what earlier builds left.
func (r *runner) clean(s Step) error {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, path := range s.Removes {
		if err := root.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// install runs install.sh and asks the interpreter for what it has then.
func (r *runner) install(s Step, run func(dir string, argv ...string) error) error {
	dist := filepath.Join(s.Dir, "dist")
	before, err := wheels(dist)
	if err != nil {
		return fmt.Errorf("reading %s: %w", dist, err)
	}
	script, err := os.ReadFile(filepath.Join(s.Dir, scriptPath))
	if err != nil {
		return err
	}
	if err := run(s.Dir, s.Argv...); err != nil {
		return err
	}
	fresh, err := newWheels(dist, before)
	if err != nil {
		return fmt.Errorf("reading %s: %w", dist, err)
	}
	if len(fresh) == 0 {
		return fmt.Errorf("%s ended with status 0, but made no wheel in %s", scriptPath, dist)
	}
	away, err := os.MkdirTemp(r.plan.State, "probe-") // where no module of the checkout lies
	if err != nil {
		return err
	}
	defer os.RemoveAll(away)
	for _, file := range fresh {
		w, err := readWheel(file)
		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		out := filepath.Join(away, "answer.json")
		argv := append([]string{interpreter(script), "-c", probe, out, w.name}, w.modules...)
		if err := run(away, argv...); err != nil {
			return fmt.Errorf("importing %s: %w", strings.Join(w.modules, ", "), err)
		}
		a, err := readAnswer(out)
		if err != nil {
			return fmt.Errorf("importing %s: %w", strings.Join(w.modules, ", "), err)
		}
		if err := w.installed(a); err != nil {
			return err
		}
		r.report.Wheels, r.report.Interpreter = append(r.report.Wheels, file), a.Interpreter
	}
	return nil
}

// progress tells how far a step is.
type progress struct {
	mu    sync.Mutex
	of    Progress
	to    func(Progress)
	start time.Time
}

// line takes a line of output.
func (p *progress) line(line string, percent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of.Line = line
	if percent >= 0 {
		p.of.Percent = percent
	}
}

const tick = 250 * time.Millisecond

// begin tells of the step now and then, until stop is called.
func (p *progress) begin() (stop func()) {
	p.tell()
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		t := time.NewTicker(tick)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				p.tell()
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-gone
	}
}

func (p *progress) end(s StepState) {
	p.of.State = s
	p.tell()
}

func (p *progress) tell() {
	p.mu.Lock()
	now := p.of
	p.mu.Unlock()
	if p.to == nil {
		return
	}
	now.Elapsed = time.Since(p.start)
	p.to(now)
}
