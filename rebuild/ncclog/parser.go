package ncclog

import (
	"bytes"
	"cmp"
	"io"
	"regexp"
	"slices"
	"strconv"
)

const (
	maxLine         = 64 << 10 // bytes of a line that are looked at
	maxText         = 400      // bytes of an event's text
	maxUnknown      = 500      // different unknown messages that are kept
	maxMeasurements = 50_000   // values that are kept, over all labels
)

// A Parser takes a run's output as an [io.Writer], in pieces of any size. The zero
// Parser is ready to use. Its memory does not grow with the output. It is not safe
// for concurrent use.
type Parser struct {
	tail    []byte // a line whose end has not been seen
	scratch []byte
	lines   int
	version string

	// Events since the tests' last result, and those before it. Only the end of
	// the output tells which result was the last.
	recent, settled map[key]*Event
	unknown         int
	dropped         int

	results   Results
	ran       int // tests that unittest said it ran, until it says how they went
	ready     bool
	cause     bool // trouble has been seen
	traceback map[int]bool

	labels map[string]int // index into measurements
	meas   []Measurement
	values int
}

// A key tells events apart that are folded.
type key struct {
	kind  Kind
	text  string // for kinds whose messages differ
	ready bool
	cause bool // for kinds whose meaning depends on it
}

// Read reads a whole output. On error, what was read before it is in the report.
func Read(r io.Reader) (*Report, error) {
	var p Parser
	_, err := io.CopyBuffer(struct{ io.Writer }{&p}, struct{ io.Reader }{r}, make([]byte, 256<<10))
	return p.Report(), err
}

// Write takes the next piece of output. It never fails.
func (p *Parser) Write(b []byte) (int, error) {
	n := len(b)
	for {
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			break
		}
		if len(p.tail) > 0 {
			p.extend(b[:i])
			p.line(p.tail)
			p.tail = p.tail[:0]
		} else {
			p.line(b[:min(i, maxLine)])
		}
		b = b[i+1:]
	}
	p.extend(b)
	return n, nil
}

func (p *Parser) extend(b []byte) {
	p.tail = append(p.tail, b[:min(len(b), max(0, maxLine-len(p.tail)))]...)
}

// Report judges what has been written so far, an unfinished last line included.
// More may be written after it.
func (p *Parser) Report() *Report {
	if len(p.tail) > 0 {
		p.line(p.tail)
		p.tail = p.tail[:0]
	}
	r := &Report{Lines: p.lines, Results: p.results, Measurements: slices.Clone(p.meas), NCCLVersion: p.version, Dropped: p.dropped}
	judge := func(events map[key]*Event, exit bool) {
		for k, e := range events {
			e := *e
			e.Ranks, e.GPUs = slices.Clone(e.Ranks), slices.Clone(e.GPUs)
			e.Phase = Run
			if p.ready && !k.ready {
				e.Phase = Init
			}
			if exit {
				e.Phase = Exit
			}
			c := classOf(e.Kind)
			if c == isNoise {
				e.Phase = Exit
			}
			e.Meaning = meaning(c, e.Phase, k.cause, p.results.Failed > 0)
			r.Events = append(r.Events, e)
		}
	}
	judge(p.settled, false)
	judge(p.recent, p.results.Line > 0)
	slices.SortFunc(r.Events, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	return r
}

func classOf(k Kind) class {
	for i := range rules {
		if rules[i].kind == k {
			return rules[i].class
		}
	}
	if k == Exception {
		return isCause
	}
	return isUnknown
}

func meaning(c class, ph Phase, cause, failed bool) Meaning {
	switch {
	case c == isNoise:
		return Noise
	case c == isCause:
		return Trouble
	case c == isAdvice:
		return Advice
	case c == isEither && cause:
		return Consequence
	case c == isEither && ph == Exit && !failed:
		return Noise
	}
	return Unclear
}

// line reads one line without its end. Progress bars return the carriage, and what
// stands behind it is a line of its own to the eye.
func (p *Parser) line(b []byte) {
	p.lines++
	for {
		i := bytes.IndexByte(b, '\r')
		if i < 0 {
			break
		}
		p.part(b[:i])
		b = b[i+1:]
	}
	p.part(b)
}

func (p *Parser) part(b []byte) {
	if i := bytes.Index(b, []byte("NCCL INFO ")); i >= 0 && !contains(b, "NCCL WARN ") {
		p.info(b[i:])
		return
	}
	if len(p.traceback) == 0 && !worthALook(b) {
		return
	}
	if bytes.IndexByte(b, 0x1b) >= 0 {
		p.scratch = appendPlain(p.scratch[:0], b)
		b = p.scratch
	}
	b = bytes.TrimRight(b, " \t")
	rest, rank := stripPrefix(b)
	if p.python(rest, b, rank) || p.measure(rest) || p.result(rest) {
		return
	}
	if v, ok := bytes.CutPrefix(rest, []byte("NCCL version ")); ok && p.version == "" {
		p.version = string(v)
		return
	}
	if rank < 0 {
		rank = bracketRank(b)
	}
	rule := classify(b)
	f, ok := parseFormat(b, rest)
	switch {
	case rule != nil:
		if rule.source != "" {
			f.source = rule.source
		}
		if !ok && rule.class == isCause {
			f.level = Error
		}
		p.add(rule.kind, rule.class, "", f, b, rank)
	case exceptionLine.Match(rest):
		f.source, f.level = Python, Error
		p.add(Exception, isCause, normal(rest), f, b, rank)
	case ok:
		p.add(Unknown, isUnknown, normal(rest), f, b, rank)
	}
}

// info reads NCCL's own account of what it does, which is most of a long log.
func (p *Parser) info(b []byte) {
	if contains(b, "Init COMPLETE") {
		p.ready = true
	}
	if i := bytes.Index(b, []byte("NCCL version ")); i >= 0 && p.version == "" {
		p.version = string(bytes.TrimSpace(b[i+len("NCCL version "):]))
	}
}

// marks are in every line that says something: in each rule's texts or in the
// level that goes with it, in results, measurements and tracebacks.
var marks = [][]byte{
	[]byte("WARN"), []byte("rror"), []byte("ERR"), []byte("rning"), []byte("FATAL"), []byte("CRITICAL"),
	[]byte("ail"), []byte("AIL"), []byte("[W"), []byte("[E"), []byte("[F"), []byte(".py:"), []byte("ssed"), []byte("PASS"),
	[]byte("OK"), []byte("Ran "), []byte("GB/s"), []byte("Avg bus"), []byte("back (most"), []byte("NCCL version"), []byte("nvshmem"), []byte("NVSHMEM"),
	[]byte("imeout"), []byte("imed out"), []byte("xception"), []byte("gnal "), []byte("dumped"), []byte("fault"), []byte("already in use"),
	[]byte("shared memory"), []byte("No space left"), []byte("Too many open"), []byte("non-zero status"), []byte("terminate called"),
	[]byte("OMP_NUM_THREADS"), []byte("SocketImpl"), []byte("ss group"), []byte("nnection"), []byte("shutting down"), []byte("barrier"),
	[]byte("destroy_process_group"), []byte("Service thread"), []byte("NET/IB"), []byte("socketFinalize"), []byte("atchdog"), []byte("entire process"),
	[]byte("EADDR"), []byte("Guessing device"), []byte("initialize any"), []byte("of memory"), []byte("ncclInvalid"), []byte("leaked"),
}

// starts finds the marks that begin with two given bytes, so that a line is gone
// over once: the bytes lead to a place in byStart, and 0 there is no mark.
var starts, byStart = func() (t [1 << 16]uint8, lists [][][]byte) {
	lists = [][][]byte{nil}
	for _, m := range marks {
		pair := int(m[0])<<8 | int(m[1])
		if t[pair] == 0 {
			t[pair] = uint8(len(lists))
			lists = append(lists, nil)
		}
		lists[t[pair]] = append(lists[t[pair]], m)
	}
	return t, lists
}()

func worthALook(b []byte) bool {
	for i := 1; i < len(b); i++ {
		at := starts[int(b[i-1])<<8|int(b[i])]
		if at == 0 {
			continue
		}
		for _, m := range byStart[at] {
			if bytes.HasPrefix(b[i-1:], m) {
				return true
			}
		}
	}
	return false
}

// add counts one occurrence of a message.
func (p *Parser) add(kind Kind, c class, text string, f format, line []byte, rank int) {
	k := key{kind, text, p.ready, c == isEither && p.cause}
	if c == isCause {
		p.cause = true
	}
	e := p.recent[k]
	if e == nil {
		if kind == Unknown || kind == Exception {
			if p.unknown == maxUnknown {
				p.dropped++
				return
			}
			p.unknown++
		}
		e = &Event{
			Kind: kind, Source: f.source, Level: f.level, Text: string(line[:min(len(line), maxText)]), First: p.lines,
			Host: f.host, PID: f.pid, TID: f.tid, Location: f.location,
		}
		if p.recent == nil {
			p.recent = map[key]*Event{}
		}
		p.recent[k] = e
	}
	e.Count++
	e.Last = p.lines
	e.Ranks = include(e.Ranks, rank)
	e.GPUs = include(e.GPUs, f.gpu)
}

// include puts n into an ascending list, unless it is there or negative.
func include(list []int, n int) []int {
	if i, found := slices.BinarySearch(list, n); n >= 0 && !found {
		return slices.Insert(list, i, n)
	}
	return list
}

// settle notes that the tests have spoken: what stands before this line is not
// the exit.
func (p *Parser) settle(line []byte) {
	p.ready = true
	p.results.Line, p.results.Text = p.lines, string(line[:min(len(line), maxText)])
	for k, e := range p.recent {
		if p.settled == nil {
			p.settled = map[key]*Event{}
		}
		if old := p.settled[k]; old == nil {
			p.settled[k] = e
		} else {
			old.Count += e.Count
			old.Last = e.Last
			for _, n := range e.Ranks {
				old.Ranks = include(old.Ranks, n)
			}
			for _, n := range e.GPUs {
				old.GPUs = include(old.GPUs, n)
			}
			if k.kind == Unknown || k.kind == Exception {
				p.unknown--
			}
		}
	}
	clear(p.recent)
}

var (
	pytestSummary = regexp.MustCompile(`^=* ?((?:\d+ [a-z]+, )*\d+ [a-z]+) in [\d.]+s\b`)
	pytestCount   = regexp.MustCompile(`(\d+) (passed|failed|errors?)\b`)
	pytestTest    = regexp.MustCompile(`::\S+.* (?:PASSED|FAILED|ERROR|SKIPPED)\b|^(?:PASSED|FAILED|ERROR) \S+::`)
	unittestRan   = regexp.MustCompile(`^Ran (\d+) tests? in `)
	unittestEnd   = regexp.MustCompile(`^(?:OK|FAILED)(?: \((?:[\w ]+=\d+(?:, )?)+\))?$`)
	unittestCount = regexp.MustCompile(`([\w ]+)=(\d+)`)
	saysPassed    = regexp.MustCompile(`(?i)(?:^|\W)passed\W*$`)
)

// result reads what a test, or all of them, came to.
func (p *Parser) result(b []byte) bool {
	if m := pytestSummary.FindSubmatch(b); m != nil {
		for _, c := range pytestCount.FindAllSubmatch(m[1], -1) {
			if n := atoi(c[1]); string(c[2]) == "passed" {
				p.results.Passed += n
			} else {
				p.results.Failed += n
			}
		}
		p.settle(b)
		return true
	}
	switch {
	case pytestTest.Match(b):
	case unittestRan.Match(b):
		p.ran = atoi(unittestRan.FindSubmatch(b)[1])
	case unittestEnd.Match(b):
		for _, c := range unittestCount.FindAllSubmatch(b, -1) {
			n := atoi(c[2])
			p.ran -= n
			if what := string(bytes.TrimSpace(c[1])); what == "failures" || what == "errors" {
				p.results.Failed += n
			}
		}
		p.results.Passed += max(0, p.ran)
		p.ran = 0
	case saysPassed.Match(b):
		p.results.Passed++
	default:
		return false
	}
	p.settle(b)
	return true
}

func atoi(b []byte) int {
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return 0
	}
	return n
}

var (
	exceptionLine = regexp.MustCompile(`^[A-Za-z_][\w.]*(?:Error|Exception)(?::|$)`)
	raisedLine    = regexp.MustCompile(`^[A-Za-z_][\w.]*(?::|$)`)
)

// python follows tracebacks: one message, whose last line names the exception.
// Each rank has its own.
func (p *Parser) python(rest, line []byte, rank int) bool {
	if bytes.HasPrefix(rest, []byte("Traceback (most recent call last)")) {
		if p.traceback == nil {
			p.traceback = map[int]bool{}
		}
		p.traceback[rank] = true
		return true
	}
	if !p.traceback[rank] {
		return false
	}
	if len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t' {
		return true
	}
	if !raisedLine.Match(rest) {
		return false
	}
	delete(p.traceback, rank)
	f := format{source: Python, level: Error, pid: -1, tid: -1, gpu: -1}
	if rule := classify(line); rule != nil {
		if rule.source != "" {
			f.source = rule.source
		}
		p.add(rule.kind, rule.class, "", f, line, rank)
	} else {
		p.add(Exception, isCause, normal(rest), f, line, rank)
	}
	return true
}
