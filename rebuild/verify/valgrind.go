package verify

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"ncclfix/rebuild/verify/probe"
)

// A Memcheck is what valgrind says of one run, over all its processes.
type Memcheck struct {
	Status    int            `json:"status"` // of the command
	TimedOut  bool           `json:"timedOut,omitempty"`
	Processes int            `json:"processes"`
	Errors    map[string]int `json:"errors,omitempty"` // invalid reads and the like: different ones, by kind
	Lost      int64          `json:"lost"`             // bytes definitely lost
	Blocks    int64          `json:"blocks"`
}

// memcheck makes one run under valgrind, or returns nil if ctx ends. Python's own
// allocator hides what is lost, so it is switched off.
func (s *session) memcheck(ctx context.Context) (*Memcheck, error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return nil, errors.New("running valgrind: it is not on PATH")
	}
	if s.cfg.Started != nil {
		s.cfg.Started("valgrind")
	}
	dir := filepath.Join(s.temp, "valgrind")
	env, err := probe.Install(dir)
	if err != nil {
		return nil, err
	}
	s.markers = append(s.markers, env[len(env)-1])
	log, err := os.Create(filepath.Join(s.cfg.Logs, "valgrind.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	argv := append([]string{"valgrind", "--quiet", "--trace-children=yes", "--child-silent-after-fork=no",
		"--leak-check=full", "--show-leak-kinds=definite", "--xml=yes", "--xml-file=" + filepath.Join(dir, "%p.xml")}, s.cfg.Command...)
	o, err := execute(ctx, program{
		argv: argv, dir: s.cfg.Dir, env: append(environment(env), "PYTHONMALLOC=malloc"),
		marker: s.markers[len(s.markers)-1], timeout: s.cfg.Timeout,
	}, log)
	if err != nil || ctx.Err() != nil {
		return nil, err
	}
	m := &Memcheck{Status: o.status, TimedOut: o.timedOut, Errors: map[string]int{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.xml"))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = m.read(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("reading valgrind's report %s: %w", filepath.Base(name), err)
		}
	}
	return m, nil
}

// read adds one process's report. A report that breaks off, as that of a killed
// process does, counts as far as it goes.
func (m *Memcheck) read(r io.Reader) error {
	m.Processes++
	d := xml.NewDecoder(r)
	for {
		t, err := d.Token()
		var broken *xml.SyntaxError
		if err == io.EOF || errors.As(err, &broken) && strings.Contains(broken.Msg, "unexpected EOF") {
			return nil
		}
		if err != nil {
			return err
		}
		start, ok := t.(xml.StartElement)
		if !ok || start.Name.Local != "error" {
			continue
		}
		var e struct {
			Kind   string `xml:"kind"`
			Bytes  int64  `xml:"xwhat>leakedbytes"`
			Blocks int64  `xml:"xwhat>leakedblocks"`
		}
		if err := d.DecodeElement(&e, &start); err != nil {
			if errors.As(err, &broken) && strings.Contains(broken.Msg, "unexpected EOF") {
				return nil
			}
			return err
		}
		switch {
		case e.Kind == "Leak_DefinitelyLost":
			m.Lost += e.Bytes
			m.Blocks += e.Blocks
		case !strings.HasPrefix(e.Kind, "Leak_"):
			m.Errors[e.Kind]++
		}
	}
}

// check judges the run. Interpreters and drivers lose some memory of their own
// accord and look at some that was never set, so only invalid accesses fail; the
// rest is reported.
func (m *Memcheck) check() Check {
	c := Check{Name: "valgrind", Verdict: Pass}
	c.Summary = fmt.Sprintf("%s lost %d bytes in %s for good", count(m.Processes, "process"), m.Lost, count(int(m.Blocks), "block"))
	for _, kind := range slices.Sorted(maps.Keys(m.Errors)) {
		if strings.HasPrefix(kind, "Invalid") || strings.HasPrefix(kind, "Mismatched") {
			c.Verdict = Fail
		}
		c.Details = append(c.Details, fmt.Sprintf("%s: %d", kind, m.Errors[kind]))
	}
	switch {
	case m.Processes == 0:
		c.Verdict, c.Summary = Unknown, "valgrind reported nothing"
	case m.TimedOut:
		c.Verdict, c.Summary = Fail, "the run under valgrind took longer than the time limit"
	case m.Status != 0:
		c.Verdict = Fail
		c.Details = append(c.Details, fmt.Sprintf("the command ended with status %d under valgrind", m.Status))
	}
	return c
}
