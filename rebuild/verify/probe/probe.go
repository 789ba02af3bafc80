// Package probe finds out which processes of a run end with an open process group.
//
// It is a single Python file, which Python loads at its start because it lies
// first on PYTHONPATH under the name sitecustomize. It asks
// torch.distributed.is_initialized() at each process's end, so it needs neither a
// GPU nor a particular version of PyTorch. It runs on Python 3.8 and later.
package probe

import (
	"bufio"
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed sitecustomize.py
var source []byte

// Variable is the environment variable that names the folder of records. Every
// process of a run has it, so it also tells which processes a run has left.
const Variable = "NCCLFIX_PROBE"

const (
	siteDir    = "site"
	recordsDir = "records"
)

// Install lays the probe out in dir, a folder for one run that need not exist,
// and returns the environment entries to add to those of the run's command.
// Relative paths are made absolute. An existing PYTHONPATH stays behind the probe.
func Install(dir string) (env []string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("installing the probe: %w", err)
	}
	site, records := filepath.Join(dir, siteDir), filepath.Join(dir, recordsDir)
	for _, d := range []string{site, records} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, fmt.Errorf("installing the probe: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(site, "sitecustomize.py"), source, 0o644); err != nil {
		return nil, fmt.Errorf("installing the probe: %w", err)
	}
	path := site
	if old := os.Getenv("PYTHONPATH"); old != "" {
		path += string(filepath.ListSeparator) + old
	}
	return []string{"PYTHONPATH=" + path, Variable + "=" + records}, nil
}

// A State says whether a process had opened a default process group and left it
// open. A group inherited by fork is its parent's, not its own.
type State string

const (
	Open    State = "open"
	Closed  State = "closed"  // destroyed, or never opened
	Unknown State = "unknown" // the process ended without running its exit handlers
)

// An Exit says how a process ended, as far as Python saw it.
type Exit string

const (
	Normal     Exit = "normal"    // ran to its end or called sys.exit, whatever the status
	Exception  Exit = "exception" // an uncaught exception was seen; not every one can be
	NotVisible Exit = "unknown"   // os._exit or a signal
)

// A Process is one Python process of a run.
type Process struct {
	PID     int      `json:"pid"`
	PPID    int      `json:"ppid"`
	Argv    []string `json:"argv"` // the command line; a forked child has its parent's
	Group   State    `json:"group"`
	Exit    Exit     `json:"exit"`
	Rank    int      `json:"rank"`              // -1 unless the group is open
	Backend string   `json:"backend,omitempty"` // "" unless the group is open
	Target  *Target  `json:"target,omitempty"`  // what a multiprocessing child ran

	// LostFiles are the files and folders that the process opened and left open
	// without a Python file object to close them. Linux only.
	LostFiles []string `json:"lostFiles,omitempty"`
}

// A Target is the function that a multiprocessing process runs.
type Target struct {
	Name string `json:"name"` // qualified: "Worker.run"
	File string `json:"file"`
	Line int    `json:"line"`
}

// Name says which process p is, in words for a person: the target's name or the
// program, the rank if it is known, and the process id. It holds text of the
// checkout, control characters included.
func (p Process) Name() string {
	name := strings.Join(p.Argv, " ")
	if p.Target != nil {
		name = fmt.Sprintf("%s (%s:%d)", p.Target.Name, p.Target.File, p.Target.Line)
	}
	if p.Rank >= 0 {
		name += fmt.Sprintf(", rank %d", p.Rank)
	}
	return fmt.Sprintf("%s, pid %d", name, p.PID)
}

type record struct {
	Event   string
	PID     int
	PPID    int
	Argv    []string
	Open    bool
	Exit    Exit
	Rank    *int
	Backend string
	Files   []string
	Target  []any // name, file, line
}

// Read returns the Python processes that reported to dir, by pid and, where a pid
// recurs, in their order. A process that replaced itself by another Python counts
// once. Processes that still run are Unknown. A folder without records gives none:
// the run had no Python process, or none that loads sitecustomize.
func Read(dir string) ([]Process, error) {
	files, err := os.ReadDir(filepath.Join(dir, recordsDir))
	if err != nil {
		return nil, fmt.Errorf("reading the probe's records: %w", err)
	}
	var all []Process
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, recordsDir, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading the probe's records: %w", err)
		}
		ps, err := parse(data)
		if err != nil {
			return nil, fmt.Errorf("reading the probe's records: %s: %w", f.Name(), err)
		}
		all = append(all, ps...)
	}
	slices.SortStableFunc(all, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return all, nil
}

// parse reads the records of one process id.
func parse(data []byte) ([]Process, error) {
	var all []Process
	running := false // the last of all has started and not ended
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		switch r.Event {
		case "start":
			if running { // exec: the new program takes the place of the old
				all = all[:len(all)-1]
			}
			all = append(all, Process{PID: r.PID, PPID: r.PPID, Argv: r.Argv, Group: Unknown, Exit: NotVisible, Rank: -1})
			running = true
		case "end":
			if len(all) == 0 {
				return nil, fmt.Errorf("an end without a start")
			}
			all[len(all)-1].end(r)
			running = false
		default:
			return nil, fmt.Errorf("unknown event %q", r.Event)
		}
	}
	return all, lines.Err()
}

func (p *Process) end(r record) {
	p.Group, p.Exit, p.LostFiles = Closed, r.Exit, r.Files
	if r.Open {
		p.Group, p.Backend = Open, r.Backend
		if r.Rank != nil {
			p.Rank = *r.Rank
		}
	}
	if len(r.Target) == 3 {
		name, _ := r.Target[0].(string)
		file, _ := r.Target[1].(string)
		line, _ := r.Target[2].(float64)
		p.Target = &Target{name, file, int(line)}
	}
}
