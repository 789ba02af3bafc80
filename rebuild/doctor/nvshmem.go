package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"ncclfix/patchers/gitpatch"
)

// NVSHMEM is an installation of it.
type NVSHMEM struct {
	Dir string `json:"dir,omitempty"` // "" if there is none
	How string `json:"how,omitempty"` // how it was found

	// Missing is what the folder lacks to be a full installation, or "".
	Missing string `json:"missing,omitempty"`

	// UseNCCL says whether it is built with NCCL; nil if that cannot be told.
	// Evidence is where that stands: a file, with a line, or a program.
	UseNCCL  *bool  `json:"useNCCL,omitempty"`
	Evidence string `json:"evidence,omitempty"`
}

// findNVSHMEM looks where a build of DeepEP looks: $NVSHMEM_DIR first, then what pip
// has installed.
func findNVSHMEM(ctx context.Context, pip string) NVSHMEM {
	n := NVSHMEM{Dir: os.Getenv("NVSHMEM_DIR"), How: "$NVSHMEM_DIR"}
	if n.Dir == "" {
		n.Dir, n.How = pip, "pip"
	}
	if n.Dir == "" {
		return NVSHMEM{}
	}
	switch {
	case !exists(n.Dir):
		n.Missing = "such a folder"
	case !exists(filepath.Join(n.Dir, "include", "nvshmem.h")):
		n.Missing = "include/nvshmem.h"
	case !exists(filepath.Join(n.Dir, "lib")):
		n.Missing = "lib/"
	}
	n.readOptions(ctx)
	return n
}

var (
	headerOption = regexp.MustCompile(`(?m)^(?:#define NVSHMEM_USE_NCCL\b(?: *(\S+))?|/\* #undef NVSHMEM_USE_NCCL \*/)`)
	cacheOption  = regexp.MustCompile(`(?m)^NVSHMEM_USE_NCCL:\w+=(\S*)`)
	infoOption   = regexp.MustCompile(`\bNVSHMEM_USE_NCCL=(\S*)`)
)

// readOptions finds out whether NCCL is built in: from the header that is installed,
// the build's CMakeCache.txt, and the program that comes with it.
func (n *NVSHMEM) readOptions(ctx context.Context) {
	set := func(on bool, evidence string) { n.UseNCCL, n.Evidence = &on, evidence }
	for _, name := range []string{"include/non_abi/nvshmem_build_options.h", "include/nvshmem_build_options.h", "include/common/nvshmem_build_options.h"} {
		path := filepath.Join(n.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if m := headerOption.FindSubmatchIndex(text); m != nil {
			on := text[m[0]] == '#' && (m[2] < 0 || truth(string(text[m[2]:m[3]])))
			set(on, fmt.Sprintf("%s:%d", path, 1+strings.Count(string(text[:m[0]]), "\n")))
		} else {
			set(false, path+" does not name it")
		}
		return
	}
	for _, name := range []string{"CMakeCache.txt", "build/CMakeCache.txt", "../build/CMakeCache.txt"} {
		path := filepath.Join(n.Dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if m := cacheOption.FindSubmatchIndex(text); m != nil {
			set(truth(string(text[m[2]:m[3]])), fmt.Sprintf("%s:%d", path, 1+strings.Count(string(text[:m[0]]), "\n")))
			return
		}
	}
	out, err := run(ctx, filepath.Join(n.Dir, "bin", "nvshmem-info"), "-b")
	if err != nil {
		return
	}
	if m := infoOption.FindStringSubmatch(out); m != nil {
		set(truth(m[1]), "nvshmem-info -b")
	}
}

// truth reports whether CMake takes a value for true.
func truth(value string) bool {
	switch value = strings.ToUpper(value); value {
	case "", "0", "OFF", "NO", "FALSE", "N", "IGNORE", "NOTFOUND":
		return false
	}
	return !strings.HasSuffix(value, "-NOTFOUND")
}

func (n NVSHMEM) items() []Item {
	place := Item{Name: "NVSHMEM", Wanted: "include/nvshmem.h and lib/", Verdict: OK}
	if n.Dir == "" {
		place.Found, place.Verdict = notFound, Warn
		place.Fix = "internode and low-latency tests need it: ncclfix rebuild, then set NVSHMEM_DIR"
		return []Item{place}
	}
	place.Found = fmt.Sprintf("%s (from %s)", n.Dir, n.How)
	if n.Missing != "" {
		place.Found += ", without " + n.Missing
		place.Verdict, place.Fix = Fail, "set NVSHMEM_DIR to a full installation, or build one: ncclfix rebuild"
	}
	option := Item{Name: "NVSHMEM and NCCL", Wanted: "built with NVSHMEM_USE_NCCL=0", Verdict: OK}
	switch {
	case n.UseNCCL == nil:
		option.Found, option.Verdict, option.Fix = "cannot be told", Warn, "ncclfix rebuild builds NVSHMEM without NCCL"
	case *n.UseNCCL:
		option.Found, option.Verdict, option.Fix = "built with NCCL: "+n.Evidence, Fail, "ncclfix rebuild builds NVSHMEM without NCCL"
	default:
		option.Found = "built without NCCL: " + n.Evidence
	}
	return []Item{place, option}
}

const patchPath = "third-party/nvshmem.patch"

// examinePatch says whether NVSHMEM's source has the checkout's patch.
func examinePatch(dir string) Item {
	i := Item{Name: "nvshmem.patch", Wanted: "applied, if NVSHMEM is built from source", Verdict: OK}
	data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(patchPath)))
	if os.IsNotExist(err) {
		i.Found = "the checkout has none"
		return i
	}
	if err != nil {
		i.Found, i.Verdict, i.Fix = "unreadable", Warn, "look at "+patchPath
		return i
	}
	series, err := gitpatch.Parse(data)
	if err != nil {
		i.Found, i.Verdict, i.Fix = err.Error(), Warn, "look at "+patchPath
		return i
	}
	source := findSource(dir, series.Paths())
	if source == "" {
		i.Found, i.Verdict, i.Fix = "there, but no source of NVSHMEM beside it", Warn, "unpack NVSHMEM's source under third-party/ or set NVSHMEM_SRC; then ncclfix rebuild"
		return i
	}
	v, err := series.Judge(os.DirFS(source))
	if err != nil {
		i.Found, i.Verdict, i.Fix = err.Error(), Warn, "look at "+source
		return i
	}
	i.Found = fmt.Sprintf("%s: %s", v.State, source)
	switch v.State {
	case gitpatch.Applied:
	case gitpatch.Conflicts:
		i.Verdict, i.Fix = Fail, "take the version of NVSHMEM that the patch is for; ncclfix rebuild names it"
	default:
		i.Verdict, i.Fix = Warn, "ncclfix rebuild applies it"
	}
	return i
}

// findSource returns the folder with NVSHMEM's source: $NVSHMEM_SRC or one under
// third-party/ that has the files which the patch changes.
func findSource(dir string, paths []string) string {
	candidates := []string{os.Getenv("NVSHMEM_SRC")}
	for _, below := range []string{"third-party", "."} {
		entries, err := os.ReadDir(filepath.Join(dir, below))
		if err != nil {
			continue
		}
		for _, e := range entries {
			candidates = append(candidates, filepath.Join(dir, below, e.Name()), filepath.Join(dir, below, e.Name(), "nvshmem_src"))
		}
	}
	for _, c := range candidates {
		if c != "" && len(paths) > 0 && exists(filepath.Join(c, filepath.FromSlash(paths[0]))) {
			return c
		}
	}
	return ""
}

// examineEnvironment looks at the variables that decide which libraries a build
// links and a run loads.
func examineEnvironment(n NVSHMEM) []Item {
	var items []Item
	var set []string
	for _, name := range []string{"NVSHMEM_DIR", "NVSHMEM_HOME", "NCCL_HOME", "NCCL_DIR", "CUDA_HOME", "GDRCOPY_HOME"} {
		if v := os.Getenv(name); v != "" {
			set = append(set, name+"="+v)
		}
	}
	i := Item{Name: "library folders", Found: strings.Join(set, " "), Wanted: "folders that are there", Verdict: OK}
	if len(set) == 0 {
		i.Found = "none set"
	}
	for _, s := range set {
		if name, v, _ := strings.Cut(s, "="); !exists(v) {
			i.Verdict, i.Fix = Fail, fmt.Sprintf("set %s to a folder that is there, or unset it", name)
		}
	}
	items = append(items, i)

	// The first folder with the library is the one that is loaded.
	for _, lib := range []string{"libnvshmem_host.so", "libnccl.so"} {
		for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
			found, _ := filepath.Glob(filepath.Join(dir, lib+"*"))
			if dir == "" || len(found) == 0 {
				continue
			}
			i := Item{Name: "loaded " + lib, Found: found[0] + " (by LD_LIBRARY_PATH)", Wanted: "the one that was built against", Verdict: OK}
			if lib == "libnvshmem_host.so" && n.Dir != "" && !sameFolder(dir, filepath.Join(n.Dir, "lib")) {
				i.Verdict, i.Fix = Fail, fmt.Sprintf("put %s first in LD_LIBRARY_PATH, or take %s out", filepath.Join(n.Dir, "lib"), dir)
			}
			items = append(items, i)
			break
		}
	}
	if v := os.Getenv("LD_PRELOAD"); strings.Contains(v, "nccl") || strings.Contains(v, "nvshmem") {
		items = append(items, Item{Name: "LD_PRELOAD", Found: v, Wanted: "no NCCL or NVSHMEM", Verdict: Warn, Fix: "unset LD_PRELOAD unless it is meant"})
	}
	if v, ok := os.LookupEnv("NVSHMEM_USE_NCCL"); ok {
		items = append(items, Item{Name: "NVSHMEM_USE_NCCL", Found: "set to " + v, Wanted: "given to NVSHMEM's build", Verdict: Warn,
			Fix: "it is read when NVSHMEM is configured and does nothing for a run: ncclfix rebuild"})
	}
	return items
}

func sameFolder(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
