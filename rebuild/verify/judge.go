package verify

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"ncclfix/rebuild/ncclog"
	"ncclfix/rebuild/verify/probe"
)

// A Verdict is what a check came to.
type Verdict string

const (
	Pass    Verdict = "pass"
	Fail    Verdict = "fail"
	Unknown Verdict = "not judged"
)

// A Check is one of the claims that the runs were made for.
type Check struct {
	Name    string   `json:"name"` // function, open groups, bandwidth, stability, valgrind
	Verdict Verdict  `json:"verdict"`
	Summary string   `json:"summary"`
	Details []string `json:"details,omitempty"` // may hold other people's text
}

// A Comparison is one label's bandwidth. A side without the label is 0.
type Comparison struct {
	Label     string  `json:"label"`
	Candidate float64 `json:"candidate"` // GB/s, median over the runs
	Baseline  float64 `json:"baseline"`
	Ratio     float64 `json:"ratio"` // 0 unless both sides have the label
}

// judge fills in the checks.
func (r *Report) judge(base *Baseline) {
	r.Checks = []Check{r.function(), r.openGroups(), r.bandwidth(base), r.stability()}
	if r.Valgrind != nil {
		r.Checks = append(r.Checks, r.Valgrind.check())
	}
	r.Passed = !r.Interrupted
	for _, c := range r.Checks {
		r.Passed = r.Passed && c.Verdict != Fail
	}
	if r.Checks[0].Verdict == Unknown {
		r.Passed = false
	}
}

// details collects lines and counts how many runs each of them is true of.
type details struct {
	order []string
	runs  map[string][]string // labels of the runs, by line
}

func (d *details) add(run Run, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if d.runs == nil {
		d.runs = map[string][]string{}
	}
	if d.runs[line] == nil {
		d.order = append(d.order, line)
	}
	if !slices.Contains(d.runs[line], run.Label) {
		d.runs[line] = append(d.runs[line], run.Label)
	}
}

// lines returns what was collected, up to a screenful.
func (d *details) lines() []string {
	const most = 20
	var out []string
	for i, l := range d.order {
		if i == most {
			return append(out, fmt.Sprintf("and %d more", len(d.order)-most))
		}
		if n := len(d.runs[l]); n > 1 {
			l = fmt.Sprintf("%s (%d runs)", l, n)
		}
		out = append(out, l)
	}
	return out
}

// function judges the command's status and every line it printed. Whatever NCCL
// and the parts around it warn of counts, known or not; a warning of the program's
// own, and advice, are only shown.
func (r *Report) function() Check {
	c := Check{Name: "function", Verdict: Pass}
	if len(r.Runs) == 0 {
		c.Verdict, c.Summary = Unknown, "no run came to its end"
		return c
	}
	var bad, notes details
	failed, noisy := 0, 0
	for _, run := range r.Runs {
		switch {
		case run.TimedOut:
			bad.add(run, "took longer than the time limit and was ended")
		case run.Signal != "":
			bad.add(run, "was ended by a signal: %s", run.Signal)
		case run.Status != 0:
			bad.add(run, "ended with status %d", run.Status)
		}
		if run.TimedOut || run.Status != 0 {
			failed++
		}
		warned := false
		for _, e := range run.Output.Events {
			line := fmt.Sprintf("%s from %s: %s", e.Meaning, e.Source, ncclog.Quote(e.Text))
			switch {
			case e.Meaning == ncclog.Advice, e.Meaning == ncclog.Unclear && e.Source.Beside():
				notes.add(run, "note: %s", line)
			default:
				warned = true
				bad.add(run, "%s", line)
			}
		}
		if warned {
			noisy++
		}
	}
	c.Details = append(bad.lines(), notes.lines()...)
	if failed > 0 || noisy > 0 {
		c.Verdict = Fail
		c.Summary = fmt.Sprintf("%d of %s failed, %d printed warnings", failed, count(len(r.Runs), "run"), noisy)
		return c
	}
	c.Summary = fmt.Sprintf("%s passed, none printed a warning", count(len(r.Runs), "run"))
	if n := r.Runs[0].Output.Results.Passed; n > 0 {
		c.Summary += fmt.Sprintf("; %s passed in the first", count(n, "test"))
	}
	return c
}

// openGroups judges what the probe saw.
func (r *Report) openGroups() Check {
	c := Check{Name: "open groups", Verdict: Pass}
	var open, unseen details
	seen, left := 0, 0
	for _, run := range r.Runs {
		for _, p := range run.Processes {
			seen++
			switch p.Group {
			case probe.Open:
				left++
				open.add(run, "left open by %s", describe(p))
			case probe.Unknown:
				unseen.add(run, "not known of %s: it ended by os._exit or a signal, or still runs", describe(p))
			}
		}
	}
	c.Details = append(open.lines(), unseen.lines()...)
	switch {
	case left > 0:
		c.Verdict, c.Summary = Fail, fmt.Sprintf("%s ended with an open process group", count(left, "process"))
	case seen == 0:
		c.Verdict, c.Summary = Unknown, "no Python process reported"
	default:
		c.Summary = fmt.Sprintf("none of %s ended with an open process group", count(seen, "process"))
	}
	return c
}

// describe is probe.Process.Name without the pid, which differs from run to run.
func describe(p probe.Process) string {
	name := p.Name()
	return ncclog.Quote(name[:strings.LastIndex(name, ", pid ")])
}

// bandwidth compares medians by label.
func (r *Report) bandwidth(base *Baseline) Check {
	c := Check{Name: "bandwidth", Verdict: Unknown}
	order, ours := bandwidths(r.Runs)
	baseOrder, theirs := bandwidths(r.BaselineRuns)
	if base != nil && base.Log != nil {
		baseOrder, theirs = bandwidths([]Run{{Output: base.Log}})
	}
	for _, label := range baseOrder {
		if _, ok := ours[label]; !ok {
			order = append(order, label)
		}
	}
	low, compared := 0, 0
	for _, label := range order {
		x := Comparison{Label: label, Candidate: median(ours[label]), Baseline: median(theirs[label])}
		text := ncclog.Quote(label)
		switch {
		case len(theirs) == 0:
		case len(theirs[label]) == 0:
			c.Details = append(c.Details, text+": not in the baseline")
		case len(ours[label]) == 0:
			c.Details = append(c.Details, text+": only in the baseline")
		case x.Baseline > 0:
			compared++
			x.Ratio = x.Candidate / x.Baseline
			if x.Ratio < r.MinRatio {
				low++
				c.Details = append(c.Details, fmt.Sprintf("%s: %.2f GB/s is %.1f%% of %.2f", text, x.Candidate, 100*x.Ratio, x.Baseline))
			}
		}
		r.Bandwidth = append(r.Bandwidth, x)
	}
	switch {
	case len(r.Bandwidth) == 0:
		c.Summary = "the output reports none"
	case base == nil:
		c.Summary = fmt.Sprintf("%s measured; no baseline to compare with", count(len(order), "figure"))
	case compared == 0:
		c.Summary = "the baseline has no figure in common"
	case low > 0:
		c.Verdict, c.Summary = Fail, fmt.Sprintf("%d of %s below %.1f%% of the baseline", low, count(compared, "figure"), 100*r.MinRatio)
	default:
		c.Verdict, c.Summary = Pass, fmt.Sprintf("%s at %.1f%% of the baseline or more", count(compared, "figure"), 100*r.MinRatio)
	}
	return c
}

// bandwidths returns the labels in the order of the output and, for each, one
// figure a run: the median of those the run printed, one a rank, say.
func bandwidths(runs []Run) (order []string, figures map[string][]float64) {
	figures = map[string][]float64{}
	for _, run := range runs {
		for _, m := range run.Output.Measurements {
			if figures[m.Label] == nil {
				order = append(order, m.Label)
			}
			figures[m.Label] = append(figures[m.Label], median(m.Values))
		}
	}
	return order, figures
}

const (
	rssSlack = 16 << 20 // bytes; less is the allocator's
	gpuSlack = 8 << 20
)

// stability judges what the runs leave behind and whether they need more and more.
func (r *Report) stability() Check {
	c := Check{Name: "stability", Verdict: Unknown}
	if len(r.Runs) == 0 {
		c.Summary = "no run came to its end"
		return c
	}
	// The baseline's runs leave things behind, too, but they are not judged.
	var bad, notes details
	left := 0
	for _, run := range r.Runs {
		left += min(1, len(run.Segments))
	}
	var rss, gpu []float64
	held := map[int][]float64{}
	names := map[int]string{}
	for _, run := range r.Runs {
		rss = append(rss, float64(run.PeakRSS))
		if run.GPUMemory != nil {
			gpu = append(gpu, float64(*run.GPUMemory))
		}
		if n := len(run.Segments); n > 0 {
			what := fmt.Sprintf("leaves %s of shared memory, such as %s", count(n, "segment"), ncclog.Quote(commonName(run.Segments[0])))
			if 2*left >= len(r.Runs) {
				bad.add(run, "%s", what)
			} else { // a leak is there in every run
				notes.add(run, "note: %s; or another program did", what)
			}
		}
		for _, p := range run.Processes {
			for _, f := range p.LostFiles {
				bad.add(run, "%s ends without closing a descriptor of %s", describe(p), ncclog.Quote(f))
			}
		}
		for _, h := range run.Survivors {
			if names[h.PID] == "" {
				names[h.PID] = ncclog.Quote(h.Command)
				bad.add(run, "leaves a process running: %s", names[h.PID])
			}
			held[h.PID] = append(held[h.PID], float64(h.Descriptors))
		}
	}
	last := r.Runs[len(r.Runs)-1]
	for _, pid := range slices.Sorted(maps.Keys(held)) {
		if f := held[pid]; rises(f) {
			bad.add(last, "a process that outlives its run holds more and more descriptors, %.0f, then %.0f: %s", f[0], f[len(f)-1], names[pid])
		}
	}
	if grows(rss, rssSlack) {
		bad.add(last, "peak memory grows from run to run: %s, then %s", mib(rss[0]), mib(rss[len(rss)-1]))
	}
	if grows(gpu, gpuSlack) {
		bad.add(last, "GPU memory in use after a run grows: %s, then %s", mib(gpu[0]), mib(gpu[len(gpu)-1]))
	}
	c.Details = append(bad.lines(), notes.lines()...)
	switch {
	case len(bad.order) > 0:
		c.Verdict, c.Summary = Fail, "the runs leave something behind"
	case len(r.Runs) < 6:
		c.Verdict, c.Summary = Pass, fmt.Sprintf("%s left nothing behind; growth is judged from 6 runs on", count(len(r.Runs), "run"))
	default:
		c.Verdict, c.Summary = Pass, fmt.Sprintf("%s left nothing behind; peak memory is flat at %s", count(len(r.Runs), "run"), mib(median(rss)))
	}
	return c
}

// commonName returns the part of a segment's name that does not vary from run to
// run, as far as that can be told: up to its last sign of separation.
func commonName(name string) string {
	dir, base := path.Split(name)
	if i := strings.LastIndexAny(base, "-_."); i > 0 {
		base = base[:i+1] + "*"
	}
	return dir + base
}

func mib(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }

// count returns "1 run", "2 runs", "3 processes".
func count(n int, noun string) string {
	switch {
	case n == 1:
		return fmt.Sprintf("1 %s", noun)
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
