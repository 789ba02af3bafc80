// Package diagnose walks from a run's output to what to do next: did the tests
// pass, do warnings stand at the exit, is the process group destroyed in the
// process that opened it, is NVSHMEM built without NCCL. Each answer comes with
// what it rests on.
package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ncclfix/patchers"
	"ncclfix/rebuild/doctor"
	"ncclfix/rebuild/ncclog"
	"ncclfix/rebuild/verify/probe"
)

// An Input is what is known of a run and its checkout.
type Input struct {
	Log     *ncclog.Report
	LogName string // as evidence names it

	// Status is that of the command; nil if there is only its log.
	Status *int

	// Command is what was run, for a shell; "" if there is only a log.
	Command string

	// Processes are what the probe saw; nil if there was none.
	Processes []probe.Process

	// Findings are those of patchers/teardown about the tree at Path; they count
	// only if Examined is set.
	Findings []patchers.Finding
	Examined bool
	Path     string

	NVSHMEM doctor.NVSHMEM
}

// An Answer is that to a question.
type Answer string

const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// A Step is one question on the way.
type Step struct {
	Question string     `json:"question"`
	Answer   Answer     `json:"answer"`
	Evidence []Evidence `json:"evidence,omitempty"`
}

// Evidence is what an answer rests on.
type Evidence struct {
	Where string `json:"where"` // "run.log:12", "tests/test_a.py:3:5"; "" if it has no place
	Text  string `json:"text"`  // may hold other people's text
}

// A Diagnosis is the path taken and where it ends.
type Diagnosis struct {
	Steps []Step `json:"steps"`

	// Clean reports that nothing is left to do.
	Clean bool `json:"clean"`

	Recommendation string `json:"recommendation"`
	Command        string `json:"command,omitempty"` // to run next; "" if a person has to look
}

// mostEvidence is how many places an answer names; the log has them all.
const mostEvidence = 5

// Walk answers the questions in order until one of them settles what to do.
func Walk(in Input) *Diagnosis {
	d := &Diagnosis{}
	end := func(recommendation, command string) *Diagnosis {
		d.Recommendation, d.Command = recommendation, command
		return d
	}
	trouble := in.Log.With(ncclog.Trouble)
	passed, why := in.passed(trouble)
	d.ask("Did the tests pass?", passed, why)
	if passed == No || len(trouble) > 0 {
		if passed != No {
			d.ask("Is there real trouble in the output all the same?", Yes, in.lines(trouble))
		}
		if len(trouble) == 0 {
			return end("Make the tests pass first: the output does not say why they fail.", in.command("NCCL_DEBUG=INFO "))
		}
		advice, command := remedy(root(trouble), in)
		if n := len(in.Log.With(ncclog.Consequence)); n > 0 {
			advice += fmt.Sprintf(" What follows it in the output (%s) is its consequence, not a cause.", count(n, "kind of message", "kinds of messages"))
		}
		return end(advice, command)
	}

	noise, unclear := in.Log.With(ncclog.Noise), in.unclear()
	open := in.open()
	switch {
	case len(noise) > 0:
		d.ask("Do warnings stand at the exit?", Yes, in.lines(noise))
	case len(unclear) > 0:
		d.ask("Do warnings stand at the exit?", Unknown, in.lines(unclear))
		if len(open) == 0 && passed == Unknown {
			return end("The output has warnings but no result of a test, so where the exit begins is not known. Let ncclfix run the tests.", in.command("ncclfix diagnose "+in.Path+" -- "))
		}
	default:
		d.ask("Do warnings stand at the exit?", No, nil)
		if len(open) == 0 {
			d.Clean = passed == Yes
			if !d.Clean {
				return end("The output has no warning, but no result of a test either. Let ncclfix run the tests.", in.command("ncclfix verify "+in.Path+" -- "))
			}
			return end("Nothing to repair here. To prove it for many runs, and for the bandwidth:", in.command("ncclfix verify "+in.Path+" --runs 100 -- "))
		}
	}

	destroyed, why := in.destroyed(open, noise)
	d.ask("Is destroy_process_group called in the process that opened the group?", destroyed, why)
	if destroyed == No {
		return in.teardown(end)
	}
	if only(noise, ncclog.LeakedObjects) && len(unclear) == 0 {
		return end("What leaked is multiprocessing's, not a process group: join or terminate the processes and pools that the tests start.", "")
	}
	if destroyed == Unknown {
		return end("Whether the groups are destroyed cannot be told from the output. See whether the sources leave one open.", "ncclfix check "+in.Path)
	}
	if n := in.NVSHMEM; n.Dir != "" {
		answer := Unknown
		if n.UseNCCL != nil {
			answer = map[bool]Answer{true: No, false: Yes}[*n.UseNCCL]
		}
		d.ask("Is NVSHMEM built without NCCL?", answer, []Evidence{{Where: n.Evidence, Text: "NVSHMEM in " + n.Dir}})
		if answer != Yes {
			return end("NVSHMEM brings a second user of NCCL into the processes. Build it without.", "ncclfix rebuild "+in.Path)
		}
	}
	for _, e := range noise {
		if e.Kind == ncclog.StoreClosed {
			return end("A rank was still using the store when rank 0 left. Let them wait for each other before the group is destroyed.", "ncclfix diff --barrier "+in.Path)
		}
	}
	if len(unclear) > 0 {
		return end("The output has warnings that are not known, or not in this place. A person has to look at them.", "ncclfix doctor "+in.Path)
	}
	return end("The groups of this checkout are destroyed, yet the exit is not clean. See whether the surroundings are as they should be.", "ncclfix doctor "+in.Path)
}

func (d *Diagnosis) ask(question string, a Answer, why []Evidence) {
	if len(why) > mostEvidence {
		more := len(why) - mostEvidence
		why = append(slices.Clone(why[:mostEvidence]), Evidence{Text: fmt.Sprintf("and %d more", more)})
	}
	d.Steps = append(d.Steps, Step{question, a, why})
}

// passed judges the command's status and the tests' own words. Without a status,
// tests that are followed by trouble did not come to their end, and a log with
// neither a result nor trouble says nothing.
func (in Input) passed(trouble []ncclog.Event) (Answer, []Evidence) {
	var why []Evidence
	r := in.Log.Results
	if in.Status != nil {
		why = append(why, Evidence{Text: fmt.Sprintf("the command ended with status %d", *in.Status)})
	}
	if r.Line > 0 {
		why = append(why, Evidence{in.at(r.Line), r.Text})
	}
	switch {
	case in.Status != nil && *in.Status != 0, r.Failed > 0:
		return No, append(why, in.lines(trouble)...)
	case in.Status != nil:
		return Yes, why
	case slices.ContainsFunc(trouble, func(e ncclog.Event) bool { return e.Last > r.Line }):
		all := append(in.unclear(), trouble...)
		slices.SortFunc(all, func(a, b ncclog.Event) int { return cmp.Compare(a.First, b.First) })
		return No, append(why, in.lines(all)...)
	case r.Line > 0:
		return Yes, why
	}
	return Unknown, nil
}

// unclear returns what the parts around NCCL warn of without a known meaning.
func (in Input) unclear() []ncclog.Event {
	return slices.DeleteFunc(in.Log.With(ncclog.Unclear), func(e ncclog.Event) bool {
		return e.Source.Beside()
	})
}

func (in Input) open() []probe.Process {
	var open []probe.Process
	for _, p := range in.Processes {
		if p.Group == probe.Open {
			open = append(open, p)
		}
	}
	return open
}

// destroyed gathers what the probe, the output and the sources say. The probe's
// word is final.
func (in Input) destroyed(open []probe.Process, noise []ncclog.Event) (Answer, []Evidence) {
	var why []Evidence
	for _, p := range open {
		why = append(why, Evidence{Text: "still open at the end of " + p.Name()})
	}
	for _, e := range noise {
		if e.Kind == ncclog.NotDestroyed {
			why = append(why, in.lines([]ncclog.Event{e})...)
		}
	}
	for _, f := range in.Findings {
		if in.Examined && !f.Suppressed {
			why = append(why, Evidence{f.Pos.String(), fmt.Sprintf("%s [%s]", f.Message, f.Code)})
		}
	}
	switch {
	case len(why) > 0:
		return No, why
	case in.Processes != nil:
		return Yes, []Evidence{{Text: fmt.Sprintf("none of %s ended with an open group", count(len(in.Processes), "process", "processes"))}}
	case in.Examined:
		return Yes, []Evidence{{Text: "no group in the sources is left open"}}
	}
	return Unknown, nil
}

// teardown recommends the repair that the sources allow.
func (in Input) teardown(end func(string, string) *Diagnosis) *Diagnosis {
	fixes, manual := 0, 0
	for _, f := range in.Findings {
		switch {
		case f.Suppressed:
		case f.Fix != nil:
			fixes++
		default:
			manual++
		}
	}
	switch {
	case !in.Examined, fixes > 0:
		return end("Destroy the group where it was opened: at the end of the process that calls init_process_group. See the repair, then write it with ncclfix fix.", "ncclfix diff "+in.Path)
	case manual > 0:
		return end("The group is left open, and no safe repair is known. See why.", "ncclfix check -v "+in.Path)
	case in.Processes == nil:
		return end("The group is left open by code that is not in this tree, or in a way that the sources do not show. Let ncclfix run the tests to see in which process.", in.command("ncclfix diagnose "+in.Path+" -- "))
	}
	return end("The processes above leave their group open by code that is not in this tree, or in a way that the sources do not show: call torch.distributed.destroy_process_group() at the end of each of them.", "")
}

// root returns the kind of trouble to start from: the first that says what went
// wrong, and not only that something did.
func root(trouble []ncclog.Event) ncclog.Kind {
	for _, e := range trouble {
		switch e.Kind {
		case ncclog.Aborted, ncclog.ChildFailed, ncclog.Exception:
		default:
			return e.Kind
		}
	}
	return trouble[0].Kind
}

// remedy says what to do about trouble.
func remedy(k ncclog.Kind, in Input) (advice, command string) {
	doctor := "ncclfix doctor " + in.Path
	debug := in.command("NCCL_DEBUG=INFO ")
	switch k {
	case ncclog.SharedMemory:
		return "Shared memory ran out: /dev/shm is too small, or earlier runs have left segments there.", doctor
	case ncclog.Descriptors:
		return "The limit on open files was reached.", doctor
	case ncclog.WatchdogTimeout, ncclog.KernelTimeout:
		return "A collective did not come to its end in time: one rank is late, stuck or gone. Find the one that differs from the others.", debug
	case ncclog.InfiniBand, ncclog.ConnectFailed, ncclog.ProxyFailed, ncclog.ForeignPeer, ncclog.NCCLError:
		return "The communication between the ranks failed. Look at the network and at the interface that NCCL chose.", debug
	case ncclog.NVSHMEMInit:
		return "NVSHMEM did not start.", doctor
	case ncclog.OutOfMemory:
		return "The GPU's memory was used up, by the tests or by what else runs on it.", "nvidia-smi"
	case ncclog.CUDAError:
		return "A kernel failed. With CUDA_LAUNCH_BLOCKING=1 the error is reported where it happens.", in.command("CUDA_LAUNCH_BLOCKING=1 ")
	case ncclog.StoreTimeout:
		return "The ranks did not find each other: MASTER_ADDR, MASTER_PORT and the number of ranks have to agree.", debug
	case ncclog.PortInUse:
		return "The port is taken, often by an earlier run that has not ended. End it or take another MASTER_PORT.", ""
	case ncclog.InitTwice:
		return "A group was still open when the next was opened, as an earlier test left it. Destroy it at the end of each test module.", "ncclfix diff " + in.Path
	case ncclog.DestroyTwice:
		return "destroy_process_group was called without a group. Guard it with is_initialized().", "ncclfix check " + in.Path
	}
	for _, e := range in.unclear() {
		if e.Kind == ncclog.PeerClosed || e.Kind == ncclog.StoreClosed {
			return "A rank went away without a word: by os._exit, by a signal, or for want of memory. See its own output and the kernel's.", "dmesg"
		}
	}
	return "The tests fail; their exit is not the trouble. Look at the first line above.", ""
}

// command puts what starts it in front of the command, which the user fills in if
// there is only a log.
func (in Input) command(start string) string { return start + cmp.Or(in.Command, "CMD") }

func (in Input) at(line int) string { return fmt.Sprintf("%s:%d", in.LogName, line) }

func (in Input) lines(events []ncclog.Event) []Evidence {
	var why []Evidence
	for _, e := range events {
		text := e.Text
		if e.Count > 1 {
			_, where, _ := strings.Cut(e.Summary(), ", ")
			text += fmt.Sprintf(" (×%d, %s)", e.Count, where)
		}
		why = append(why, Evidence{in.at(e.First), text})
	}
	return why
}

func only(events []ncclog.Event, k ncclog.Kind) bool {
	return len(events) > 0 && !slices.ContainsFunc(events, func(e ncclog.Event) bool { return e.Kind != k })
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
