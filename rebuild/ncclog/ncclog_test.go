package ncclog

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the expected events in testdata/logs")

// show is the form of the .events files.
func show(r *Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "results: %d passed, %d failed, line %d\n", r.Results.Passed, r.Results.Failed, r.Results.Line)
	if r.NCCLVersion != "" {
		fmt.Fprintf(&b, "NCCL %s\n", r.NCCLVersion)
	}
	for _, m := range r.Measurements {
		fmt.Fprintf(&b, "GB/s %s: %v\n", m.Label, m.Values)
	}
	for _, e := range r.Events {
		fmt.Fprintf(&b, "%s, %s: %s %s at %s; %s", e.Meaning, e.Kind, e.Source, e.Level, e.Phase, e.Summary())
		if e.Location != "" {
			fmt.Fprintf(&b, "; %s", e.Location)
		}
		if e.Host != "" {
			fmt.Fprintf(&b, "; %s:%d:%d", e.Host, e.PID, e.TID)
		}
		if e.Kind == Unknown || e.Kind == Exception {
			fmt.Fprintf(&b, "; %s", Quote(e.Text))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestLogs(t *testing.T) {
	logs, err := filepath.Glob("../../testdata/logs/*.log")
	if err != nil || len(logs) < 25 {
		t.Fatalf("%d logs, %v", len(logs), err)
	}
	for _, name := range logs {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".log"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Read(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			events := strings.TrimSuffix(name, ".log") + ".events"
			if *update {
				if err := os.WriteFile(events, []byte(show(r)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(events)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), show(r)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			// The pieces in which the output arrives make no difference.
			bytewise, err := Read(iotest.OneByteReader(bytes.NewReader(data)))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(r, bytewise); d != "" {
				t.Errorf("read byte by byte (-whole +bytes):\n%s", d)
			}
		})
	}
}

// No wording is lost to the quick look that passes over most lines.
func TestEveryWordingGetsALook(t *testing.T) {
	for _, rule := range rules {
		line := strings.Join(rule.texts, " ")
		if !worthALook([]byte(line)) {
			t.Errorf("passed over: %q", line)
		}
		if got := classify([]byte(line)); got == nil || got.kind != rule.kind {
			t.Errorf("%q is hidden by an earlier rule: %+v", line, got)
		}
	}
}

// Every kind stands in some log.
func TestEveryKindHasALog(t *testing.T) {
	logs, _ := filepath.Glob("../../testdata/logs/*.log")
	seen := map[Kind]bool{}
	for _, name := range logs {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Read(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Events {
			seen[e.Kind] = true
		}
	}
	for _, rule := range rules {
		if !seen[rule.kind] {
			t.Errorf("no log has %s", rule.kind)
		}
	}
	for _, k := range []Kind{Unknown, Exception} {
		if !seen[k] {
			t.Errorf("no log has %s", k)
		}
	}
}

// What cannot be kept is counted, and long lines cost no memory.
func TestBounds(t *testing.T) {
	var p Parser
	for i := range maxUnknown + 7 {
		fmt.Fprintf(&p, "WARNING: word %c%c\n", '!'+i/80%90, 'g'+i%80) // figures would be folded
	}
	p.Write(bytes.Repeat([]byte("y"), 1<<20))
	fmt.Fprintf(&p, "\nERROR: after it\n")
	if cap(p.tail) > 2*maxLine {
		t.Errorf("kept %d bytes of one line", cap(p.tail))
	}
	r := p.Report()
	if n := len(r.Events); n != maxUnknown || r.Dropped != 8 {
		t.Errorf("%d events, %d dropped; want %d and 8", n, r.Dropped, maxUnknown)
	}
	if r.Lines != maxUnknown+9 {
		t.Errorf("%d lines, want %d", r.Lines, maxUnknown+9)
	}
}

func TestQuote(t *testing.T) {
	if got, want := Quote("a\x1b[31m\"é\\\n\xff"), `a\x1b[31m"é\\n\xff`; got != want {
		t.Errorf("Quote = %s, want %s", got, want)
	}
}

// A longLog gives size bytes of a log as a long run prints it: mostly NCCL's account
// and the program's own lines, now and then a warning.
type longLog struct {
	size  int
	block []byte
	rest  []byte
}

func newLongLog(size int) *longLog {
	var b bytes.Buffer
	for i := range 10_000 {
		fmt.Fprintf(&b, "node-%d:%d:%d [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] via P2P/CUMEM/read\n", i%4, i%8+100, i%64+200, i%8, i%32, i%8, i%8, (i+1)%8, (i+1)%8)
		fmt.Fprintf(&b, "[rank%d]: step %d loss %d.%04d lr 0.0003 grad norm 1.%03d tokens per second 182%03d\n", i%8, i, i%3, i%10000, i%1000, i%1000)
		if i%1000 == 0 {
			fmt.Fprintf(&b, "[rank%d]:[W1201 00:46:44.425038426 ProcessGroupNCCL.cpp:1575] Warning: WARNING: destroy_process_group() was not called before program exit\n", i%8)
		}
	}
	return &longLog{size: size, block: b.Bytes()}
}

func (l *longLog) Read(p []byte) (int, error) {
	if l.size == 0 {
		return 0, io.EOF
	}
	if len(l.rest) == 0 {
		l.rest = l.block
	}
	n := copy(p, l.rest[:min(len(l.rest), l.size)])
	l.rest, l.size = l.rest[n:], l.size-n
	return n, nil
}

// One iteration reads 200 MB. The peak is that of the whole process.
func BenchmarkRead(b *testing.B) {
	const size = 200_000_000
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		r, err := Read(newLongLog(size))
		if err != nil || r.Lines == 0 {
			b.Fatal(r, err)
		}
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(usage.Maxrss)/1024, "peak-MiB") // Linux counts in KiB
}

// Whatever a program prints is read, in pieces as in one.
func FuzzRead(f *testing.F) {
	logs, _ := filepath.Glob("../../testdata/logs/*.log")
	for _, name := range logs {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, 7)
	}
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		whole, err := Read(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		var p Parser
		at = max(0, min(at, len(data)))
		p.Write(data[:at])
		p.Write(data[at:])
		if d := cmp.Diff(whole, p.Report()); d != "" {
			t.Errorf("read in two pieces (-whole +pieces):\n%s", d)
		}
		for _, e := range whole.Events {
			if e.Count < 1 || e.First > e.Last || e.Last > whole.Lines || e.Meaning == "" || e.Phase == "" {
				t.Errorf("%+v", e)
			}
		}
	})
}
