package diagnose

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
	"ncclfix/rebuild/doctor"
	"ncclfix/rebuild/ncclog"
	"ncclfix/rebuild/verify/probe"
)

var update = flag.Bool("update", false, "rewrite the expected diagnoses in testdata/logs")

// show is the form of the .diagnosis files.
func show(d *Diagnosis) string {
	var b strings.Builder
	for _, s := range d.Steps {
		fmt.Fprintf(&b, "%s %s\n", s.Question, s.Answer)
		for _, e := range s.Evidence {
			text := ncclog.Quote(e.Text)
			fmt.Fprintf(&b, "  %s: %.60s\n", e.Where, text)
		}
	}
	fmt.Fprintf(&b, "clean: %v\n%s\n%s\n", d.Clean, d.Recommendation, d.Command)
	return b.String()
}

func TestLogs(t *testing.T) {
	logs, err := filepath.Glob("../../testdata/logs/*.log")
	if err != nil || len(logs) == 0 {
		t.Fatalf("%d logs, %v", len(logs), err)
	}
	for _, name := range logs {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".log"), func(t *testing.T) {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			r, err := ncclog.Read(f)
			if err != nil {
				t.Fatal(err)
			}
			got := show(Walk(Input{Log: r, LogName: filepath.Base(name), Path: "."}))
			file := strings.TrimSuffix(name, ".log") + ".diagnosis"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// What the sources, the probe and NVSHMEM's build add to a log.
func TestWalk(t *testing.T) {
	read := func(text string) *ncclog.Report {
		r, err := ncclog.Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	zero, one, on, off := 0, 1, true, false
	proxy := "2 passed in 1.0s\nh:1:2 [0] proxy.cc:1458 NCCL WARN [Service thread] Accept failed Resource temporarily unavailable\n"
	warning := "2 passed in 1.0s\n[rank0]:[W1 0:0:0.0 ProcessGroupNCCL.cpp:1] Warning: WARNING: destroy_process_group() was not called before program exit\n"
	fixable := patchers.Finding{Code: "teardown/worker", Message: "process group is never destroyed", Pos: patchers.Position{Path: "t.py", Line: 3, Column: 5}, Fix: &patchers.Fix{}}
	manual, suppressed := fixable, fixable
	manual.Fix, suppressed.Suppressed = nil, true
	for _, c := range []struct {
		name    string
		in      Input
		answers string
		command string
	}{
		{"clean run", Input{Log: read("x\n"), Status: &zero, Processes: []probe.Process{{Group: probe.Closed}}}, "yes no", "ncclfix verify . --runs 100 -- CMD"},
		{"status", Input{Log: read("2 passed in 1.0s\n"), Status: &one}, "no", "NCCL_DEBUG=INFO CMD"},
		{"open without a warning", Input{Log: read("x\n"), Status: &zero, Examined: true, Findings: []patchers.Finding{fixable}, Processes: []probe.Process{{Group: probe.Open}}}, "yes no no", "ncclfix diff ."},
		{"no safe repair", Input{Log: read(warning), Examined: true, Findings: []patchers.Finding{manual}}, "yes yes no", "ncclfix check -v ."},
		{"elsewhere, log", Input{Log: read(warning), Examined: true, Findings: []patchers.Finding{suppressed}}, "yes yes no", "ncclfix diagnose . -- CMD"},
		{"elsewhere, run", Input{Log: read(warning), Status: &zero, Examined: true, Processes: []probe.Process{{Group: probe.Open}}}, "yes yes no", ""},
		{"NVSHMEM with NCCL", Input{Log: read(proxy), Examined: true, NVSHMEM: doctor.NVSHMEM{Dir: "/n", UseNCCL: &on}}, "yes yes yes no", "ncclfix rebuild ."},
		{"NVSHMEM without NCCL", Input{Log: read(proxy), Examined: true, NVSHMEM: doctor.NVSHMEM{Dir: "/n", UseNCCL: &off}}, "yes yes yes yes", "ncclfix doctor ."},
		{"NVSHMEM not known", Input{Log: read(proxy), Examined: true, NVSHMEM: doctor.NVSHMEM{Dir: "/n"}}, "yes yes yes unknown", "ncclfix rebuild ."},
		{"no NVSHMEM", Input{Log: read(proxy), Examined: true}, "yes yes yes", "ncclfix doctor ."},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.Path, c.in.LogName = ".", "log"
			d := Walk(c.in)
			var answers []string
			for _, s := range d.Steps {
				answers = append(answers, string(s.Answer))
			}
			if got := strings.Join(answers, " "); got != c.answers || d.Command != c.command || d.Recommendation == "" {
				t.Errorf("%s; %q: %s; want %s; %q", got, d.Command, d.Recommendation, c.answers, c.command)
			}
			if d.Clean != (c.answers == "yes no" && len(c.in.Processes) > 0) {
				t.Errorf("clean: %v", d.Clean)
			}
		})
	}
}
