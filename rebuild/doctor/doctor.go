// Package doctor examines the surroundings of a checkout: what has to be installed
// and set up for its distributed tests to run and to end without warnings.
//
// It runs nothing of the checkout. It asks the Python interpreter what is
// installed, and the tools of the driver and of NVSHMEM what they see; each has a
// few seconds to answer.
package doctor

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Verdict is what an item came to.
type Verdict string

const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // it works, or may; worth a look
	Fail Verdict = "fail" // the tests cannot run like this, or not without warnings
)

// An Item is one line of the checklist.
type Item struct {
	Name    string  `json:"name"`
	Found   string  `json:"found"` // may hold other people's text; "not found" if nothing is there
	Wanted  string  `json:"wanted"`
	Verdict Verdict `json:"verdict"`
	Fix     string  `json:"fix,omitempty"` // "" if the verdict is OK
}

// Options say where to look.
type Options struct {
	Dir    string // the checkout
	Python string // the interpreter; "" takes the one of the virtual or conda environment, then python3
}

const (
	limit    = 5 * time.Second // for each tool that is asked
	notFound = "not found"
)

// A Report is the checklist and what it says about NVSHMEM, which other commands
// ask for.
type Report struct {
	Items []Item `json:"items"`

	// NVSHMEM is the installation that a build or a run would take.
	NVSHMEM NVSHMEM `json:"nvshmem"`
}

// Failed reports whether any item fails.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Items, func(i Item) bool { return i.Verdict == Fail })
}

// Examine fills in the checklist. A tool that is missing or does not answer is a
// finding, never an error.
func Examine(ctx context.Context, o Options) *Report {
	r := &Report{}
	var (
		interpreter, gpus, links, limits []Item
		python                           answer
		files                            []Item
		wait                             sync.WaitGroup
	)
	for _, look := range []func(){
		func() { interpreter, python = examinePython(ctx, o) },
		func() { gpus = examineGPUs(ctx) },
		func() { links = examineLinks(ctx) },
		func() { limits = []Item{examineDescriptors(ctx), examineSharedMemory("/dev/shm")} },
		func() { files = []Item{examinePatch(o.Dir)} },
	} {
		wait.Go(look)
	}
	wait.Wait()
	r.NVSHMEM = findNVSHMEM(ctx, python.NVSHMEM)
	r.Items = slices.Concat(interpreter, gpus, links, limits, r.NVSHMEM.items(), files, examineEnvironment(r.NVSHMEM))
	return r
}

// run runs a tool within its time and returns what it printed. The text of an
// error is for the Found column.
func run(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return "", errors.New(notFound)
	case ctx.Err() != nil:
		return "", fmt.Errorf("no answer in %s", limit)
	case errors.As(err, &exit):
		line, _, _ := strings.Cut(strings.TrimSpace(string(exit.Stderr)+string(out)), "\n")
		return "", fmt.Errorf("status %d: %s", exit.ExitCode(), line)
	case err != nil:
		return "", err
	}
	return string(out), nil
}

//go:embed ask.py
var ask string

// An answer is what an interpreter says of itself.
type answer struct {
	Executable string
	Version    string
	Prefix     string
	Venv       bool
	Conda      bool
	Installed  map[string]string // versions, by distribution
	TorchCUDA  string            // "" if PyTorch is built without
	NVSHMEM    string            // folder of pip's NVSHMEM, or ""
}

// first returns the first of the distributions that is installed.
func (a answer) first(names ...string) (name, version string) {
	for _, n := range names {
		if v := a.Installed[n]; v != "" {
			return n, v
		}
	}
	return "", ""
}

// interpreter returns the Python to ask and how it was chosen.
func interpreter(o Options) (path, how string) {
	if o.Python != "" {
		return o.Python, "--python"
	}
	for _, c := range []struct{ dir, how string }{
		{os.Getenv("VIRTUAL_ENV"), "$VIRTUAL_ENV"},
		{os.Getenv("CONDA_PREFIX"), "$CONDA_PREFIX"},
		{filepath.Join(o.Dir, ".venv"), ".venv of the checkout"},
		{filepath.Join(o.Dir, "venv"), "venv of the checkout"},
	} {
		if p := filepath.Join(c.dir, "bin", "python"); c.dir != "" && exists(p) {
			return p, c.how
		}
	}
	return "python3", "PATH"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func examinePython(ctx context.Context, o Options) ([]Item, answer) {
	path, how := interpreter(o)
	var a answer
	out, err := run(ctx, path, "-c", ask, "torch", "pytest", "deep_ep",
		"nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-nvshmem-cu12", "nvidia-nvshmem-cu13")
	if err == nil {
		err = json.Unmarshal([]byte(out), &a)
	}
	item := Item{Name: "Python", Wanted: "3.8 or later", Verdict: OK}
	if err != nil {
		item.Found, item.Verdict = fmt.Sprintf("%s (from %s)", err, how), Fail
		item.Fix = "activate the environment that PyTorch is installed in, or name its interpreter with --python"
		return []Item{item}, a
	}
	kind := "system"
	switch {
	case a.Venv:
		kind = "virtual environment"
	case a.Conda:
		kind = "conda"
	}
	item.Found = fmt.Sprintf("%s: %s (%s, from %s)", a.Version, a.Executable, kind, how)
	if v := parse(a.Version); less(v, version{3, 8}) {
		item.Verdict, item.Fix = Fail, "use a newer Python"
	}
	return append([]Item{item}, judgePackages(a)...), a
}

// judgePackages judges PyTorch, its CUDA and NCCL, and pytest.
func judgePackages(a answer) []Item {
	torch := Item{Name: "PyTorch", Found: a.Installed["torch"], Wanted: "2.0 or later", Verdict: OK}
	v := parse(torch.Found)
	switch {
	case torch.Found == "":
		torch.Found, torch.Verdict, torch.Fix = notFound, Fail, "install PyTorch for this interpreter, or name another with --python"
	case less(v, version{2, 0}):
		torch.Verdict, torch.Fix = Fail, "update PyTorch to 2.0 or later"
	case less(v, version{2, 4}):
		torch.Found += " (2.0 to 2.3 is what the checklist was written for)"
	default:
		torch.Found += " (warns of open groups at the exit; fine once they are destroyed)"
	}
	if a.Installed["torch"] == "" {
		return []Item{torch, judgePytest(a)}
	}
	cuda := Item{Name: "PyTorch's CUDA", Found: a.TorchCUDA, Wanted: "built with CUDA", Verdict: OK}
	if cuda.Found == "" {
		cuda.Found, cuda.Verdict, cuda.Fix = "built without", Fail, "install a PyTorch that is built with CUDA; without it there is no NCCL"
	}
	nccl := Item{Name: "NCCL", Wanted: "2.18 or later", Verdict: OK}
	switch name, found := a.first("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11"); {
	case found != "":
		nccl.Found = fmt.Sprintf("%s (%s)", found, name)
		if less(parse(found), version{2, 18}) {
			nccl.Verdict, nccl.Fix = Warn, "update PyTorch and with it NCCL: its messages are known from 2.18 on"
		}
	case a.TorchCUDA != "":
		nccl.Found = "part of PyTorch or of the system; NCCL_DEBUG=VERSION makes a run say which"
	default:
		nccl.Found, nccl.Verdict, nccl.Fix = notFound, Warn, "comes with a PyTorch that is built with CUDA"
	}
	return []Item{torch, cuda, nccl, judgePytest(a)}
}

func judgePytest(a answer) Item {
	i := Item{Name: "pytest", Found: a.Installed["pytest"], Wanted: "7.3.1 or later", Verdict: OK}
	switch {
	case i.Found == "":
		i.Found, i.Verdict, i.Fix = notFound, Warn, "pip install 'pytest>=7.3.1', if the tests are run by it"
	case less(parse(i.Found), version{7, 3, 1}):
		i.Verdict, i.Fix = Fail, "pip install --upgrade 'pytest>=7.3.1'"
	}
	return i
}

// A version is the figures at the beginning of a version number.
type version []int

func parse(s string) version {
	var v version
	for part := range strings.SplitSeq(s, ".") {
		end := strings.IndexFunc(part, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			end = len(part)
		}
		n, err := strconv.Atoi(part[:end])
		if err != nil {
			break
		}
		if v = append(v, n); end < len(part) {
			break
		}
	}
	return v
}

func less(a, b version) bool { return slices.Compare(a, b) < 0 }

func examineGPUs(ctx context.Context) []Item {
	gpu := Item{Name: "GPUs", Wanted: "one or more, seen by the driver", Verdict: OK}
	out, err := run(ctx, "nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
	var names []string
	driver := ""
	for line := range strings.Lines(out) {
		name, d, ok := strings.Cut(strings.TrimSpace(line), ", ")
		if ok {
			names, driver = append(names, name), d
		}
	}
	switch {
	case err != nil:
		gpu.Found = "nvidia-smi: " + err.Error()
	case len(names) == 0:
		gpu.Found = "none"
	default:
		gpu.Found = fmt.Sprintf("%d × %s, driver %s", len(names), strings.Join(slices.Compact(names), ", "), driver)
		return []Item{gpu}
	}
	gpu.Verdict, gpu.Fix = Fail, "run on a machine with NVIDIA's driver and a GPU; in a container, hand the GPUs in"
	return []Item{gpu}
}

// examineLinks asks how the GPUs reach each other. With fewer than two there is
// nothing to say.
func examineLinks(ctx context.Context) []Item {
	topology, err := run(ctx, "nvidia-smi", "topo", "-m")
	if err != nil {
		return nil
	}
	peers, err := run(ctx, "nvidia-smi", "topo", "-p2p", "r")
	if err != nil {
		peers = ""
	}
	return judgeLinks(topology, peers)
}

// judgeLinks reads the two matrices: what connects each pair, and whether one may
// read the other's memory.
func judgeLinks(topology, peers string) []Item {
	cells := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			if len(f) < 3 || !strings.HasPrefix(f[0], "GPU") || !slices.Contains(f, "X") {
				continue
			}
			for i, c := range f[1:] {
				if i != slices.Index(f[1:], "X") && !strings.ContainsAny(c, "-,:") && c != "N/A" {
					all = append(all, c)
				}
			}
		}
		return all
	}
	pairs := cells(topology)
	nvlink, direct, refused := 0, 0, 0
	for _, c := range pairs {
		if n, ok := strings.CutPrefix(c, "NV"); ok && n != "" && n[0] >= '0' && n[0] <= '9' {
			nvlink++
		}
	}
	for _, c := range cells(peers) {
		if c == "OK" {
			direct++
		} else {
			refused++
		}
	}
	if nvlink+direct+refused == 0 {
		return nil
	}
	item := Item{Name: "GPU links", Wanted: "NVLink, or peer-to-peer access", Verdict: OK, Found: "NVLink and peer-to-peer access"}
	switch {
	case refused > 0:
		item.Found, item.Verdict = fmt.Sprintf("%d of %d pairs without peer-to-peer access", refused/2, (direct+refused)/2), Fail
		item.Fix = "see what nvidia-smi topo -p2p r says; in a virtual machine or container, peer access may be switched off"
	case nvlink == 0:
		item.Found, item.Verdict = "peer-to-peer access without NVLink", Warn
		item.Fix = "expect PCIe's bandwidth; DeepEP's intranode kernels want NVLink"
	}
	return []Item{item}
}

// examineDescriptors asks a shell, because a Go program raises its own limit.
func examineDescriptors(ctx context.Context) Item {
	out, err := run(ctx, "sh", "-c", "ulimit -n")
	if err != nil {
		out = err.Error()
	}
	return judgeDescriptors(strings.TrimSpace(out))
}

func judgeDescriptors(found string) Item {
	i := Item{Name: "open files", Found: found, Wanted: "ulimit -n above 1024", Verdict: OK}
	if n, err := strconv.Atoi(found); found != "unlimited" && (err != nil || n <= 1024) {
		i.Verdict, i.Fix = Fail, "ulimit -n 65536, or nofile in /etc/security/limits.conf"
	}
	return i
}

const (
	shmLeast = 64 << 20 // what a container gets by default, and NCCL exhausts
	shmGood  = 1 << 30
)

func examineSharedMemory(dir string) Item {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return Item{Name: dir, Found: notFound, Wanted: "1 GiB or more", Verdict: Warn, Fix: "NCCL and PyTorch keep shared memory there; mount a tmpfs"}
	}
	return judgeSharedMemory(dir, int64(fs.Blocks)*int64(fs.Bsize), int64(fs.Bavail)*int64(fs.Bsize))
}

func judgeSharedMemory(dir string, size, free int64) Item {
	i := Item{Name: dir, Found: fmt.Sprintf("%s, %s free", bytes(size), bytes(free)), Wanted: "1 GiB or more", Verdict: OK}
	switch {
	case free <= shmLeast:
		i.Verdict = Fail
	case size < shmGood || free < shmGood/2:
		i.Verdict = Warn
	default:
		return i
	}
	i.Fix = "mount -o remount,size=8G /dev/shm, or docker run --shm-size=8g; remove what earlier runs left there"
	return i
}

func bytes(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}
