// Package ncclog reads what a distributed test run prints and says what its
// warnings mean.
//
// The same line can be harmless or not: NCCL's "[Service thread] Accept failed" is
// the noise of an unclean exit after the tests' last result, and a consequence of
// something worse behind a time-out. So a [Parser] reads the whole output, tells
// the phases of the run apart and judges each line by what stands before it.
//
// It knows the wordings of PyTorch 1.13 to 2.11 and NCCL 2.18 to 2.28. A line that
// calls itself a warning or an error and is none of these is kept as [Unknown].
package ncclog

import "fmt"

// A Source is the part of the system that printed a line.
type Source string

const (
	NCCL     Source = "NCCL"
	C10D     Source = "c10d" // PyTorch's process groups
	TCPStore Source = "TCPStore"
	NVSHMEM  Source = "NVSHMEM"
	CUDA     Source = "CUDA"
	DeepEP   Source = "DeepEP"
	PyTorch  Source = "PyTorch" // its other parts
	Python   Source = "Python"
	Runner   Source = "runner" // torchrun, multiprocessing, pytest, the shell
	Program  Source = "program"
)

// Beside reports whether the source has nothing to do with communication as such:
// its warnings may be about anything.
func (s Source) Beside() bool { return s == PyTorch || s == Python || s == Program }

// A Level is how serious the line says it is.
type Level string

const (
	Warning Level = "warning"
	Error   Level = "error"
	Fatal   Level = "fatal"
)

// A Phase is the part of the run that a line falls in.
type Phase string

const (
	Init Phase = "init" // before a communicator is complete or a test has a result
	Run  Phase = "run"
	Exit Phase = "exit" // after the tests' last result; never where there is none
)

// A Meaning is what a line says about the run.
type Meaning string

const (
	Noise       Meaning = "exit noise"  // the exit was not clean; the work was done
	Trouble     Meaning = "trouble"     // something went wrong
	Consequence Meaning = "consequence" // follows from trouble that stands before it
	Advice      Meaning = "advice"      // harmless, and says how to avoid it
	Unclear     Meaning = "unclear"     // not known, or not with what stands around it
)

// An Event is a message that the output holds once or more.
type Event struct {
	Kind    Kind    `json:"kind"`
	Source  Source  `json:"source"`
	Level   Level   `json:"level"`
	Meaning Meaning `json:"meaning"`
	Phase   Phase   `json:"phase"`

	// Text is the first occurrence as it was printed, without colours, cut to a
	// few hundred bytes. It may hold control characters.
	Text string `json:"text"`

	First int `json:"first"` // line numbers from 1
	Last  int `json:"last"`
	Count int `json:"count"`

	// Where the first occurrence comes from; "" and -1 where it does not say.
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid"`
	TID      int    `json:"tid"`
	Location string `json:"location,omitempty"` // "proxy.cc:1458"

	// Ranks and GPUs are those of all occurrences, ascending.
	Ranks []int `json:"ranks,omitempty"`
	GPUs  []int `json:"gpus,omitempty"`
}

// Summary says how often and where the event occurred: "×8, ranks 0-7".
func (e Event) Summary() string {
	s := fmt.Sprintf("line %d", e.First)
	if e.Count > 1 {
		s = fmt.Sprintf("×%d, lines %d-%d", e.Count, e.First, e.Last)
	}
	switch {
	case len(e.Ranks) > 0:
		s += ", " + ranges("rank", e.Ranks)
	case len(e.GPUs) > 0:
		s += ", " + ranges("GPU", e.GPUs)
	}
	return s
}

// ranges shows ascending numbers as "ranks 0-3, 7".
func ranges(noun string, n []int) string {
	s := noun
	if len(n) > 1 {
		s += "s"
	}
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		if i > 0 {
			s += ","
		}
		if s += fmt.Sprintf(" %d", n[i]); j > i {
			s += fmt.Sprintf("-%d", n[j])
		}
		i = j + 1
	}
	return s
}

// Results are the tests' own words about how they went.
type Results struct {
	Passed int    `json:"passed"`
	Failed int    `json:"failed"`
	Line   int    `json:"line"` // of the last result; 0 if there is none
	Text   string `json:"text,omitempty"`
}

// A Measurement is a bandwidth that the output reports.
type Measurement struct {
	Label  string    `json:"label"`
	Values []float64 `json:"values"` // GB/s, in the order of the output
}

// A Report is what a whole output says.
type Report struct {
	Lines        int           `json:"lines"`
	Events       []Event       `json:"events"` // by first line
	Results      Results       `json:"results"`
	Measurements []Measurement `json:"measurements,omitempty"` // by first occurrence
	NCCLVersion  string        `json:"ncclVersion,omitempty"`

	// Dropped counts occurrences of unknown messages, and measurements, beyond
	// what a Parser keeps.
	Dropped int `json:"dropped,omitempty"`
}

// With returns the events that have the meaning.
func (r *Report) With(m Meaning) []Event {
	var events []Event
	for _, e := range r.Events {
		if e.Meaning == m {
			events = append(events, e)
		}
	}
	return events
}

// Has returns the first event of a kind.
func (r *Report) Has(k Kind) (Event, bool) {
	for _, e := range r.Events {
		if e.Kind == k {
			return e, true
		}
	}
	return Event{}, false
}
