// Package rebuild plans and runs the rebuild of a checkout that uses NVSHMEM:
// third-party/nvshmem.patch is applied to NVSHMEM's source, NVSHMEM is built with
// NVSHMEM_USE_NCCL=0, and the checkout's install.sh is run against it.
//
// NVSHMEM_USE_NCCL is read by NVSHMEM's own CMake project, from the environment,
// when it is configured. Setting it for install.sh or for a test does nothing,
// so NVSHMEM itself has to be built anew.
//
// [NewPlan] looks at everything and runs nothing of the checkout; what it shows
// is what [Plan.Run] does. A step counts when what it is there to make is there,
// whatever its program's exit status says: install.sh ends with a cd and so
// with status 0, even when pip failed.
//
// # The state
//
// The build, the installed NVSHMEM, unpacked archives and the logs are in a
// folder for each checkout, by default $XDG_STATE_HOME/ncclfix/rebuild/ID or
// ~/.local/state/ncclfix/rebuild/ID. What is installed there stays in use: the
// checkout's extension is linked to it.
//
// A run that ended early is resumed by the next one that plans the same: steps
// that were finished, and whose products are there, are not run again, and the
// build goes on where it was. After a run that came to its end, the next one
// starts from the beginning, since sources may have changed.
package rebuild

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"

	"ncclfix/patchers"
	"ncclfix/patchers/checkout"
	"ncclfix/patchers/gitpatch"
)

// patchPath and scriptPath are where a checkout has its parts.
const (
	patchPath  = "third-party/nvshmem.patch"
	scriptPath = "install.sh"
)

// Options say what to rebuild, and how.
type Options struct {
	Checkout    string   // top folder of the checkout
	Source      string   // NVSHMEM's source: a folder, .txz or .tar.gz; "" to look for it
	SkipNVSHMEM bool     // leave NVSHMEM as it is installed
	Prefix      string   // where NVSHMEM is installed; "" for a folder of the state
	Set         []string // NAME=VALUE, for the environment of all steps
	CMakeArgs   []string // further arguments of the configure step
	CXXStandard int      // that all of NVSHMEM is compiled as; 0 for what it says itself
	Jobs        int      // 0 for as many as there are processors
	KeepEnv     []string // variables to hand on though they look like secrets
	Despite     []string // codes of traps to go on in spite of
	Env         []string // the environment, as os.Environ has it
}

// A Plan is all that a rebuild will do.
type Plan struct {
	Checkout  string            `json:"checkout"`
	Source    *Source           `json:"source,omitempty"` // nil if NVSHMEM is not built
	Patch     *Patch            `json:"patch,omitempty"`  // nil if there is none, or no source
	Prefix    string            `json:"prefix,omitempty"` // where NVSHMEM is or will be installed
	State     string            `json:"state"`
	Inherited []string          `json:"inherited"` // names of variables that all steps are handed on
	Withheld  []string          `json:"withheld"`  // names of those that look like secrets
	Files     map[string]string `json:"files"`     // path and text of what is written beside the logs
	Steps     []Step            `json:"steps"`
	Traps     []Trap            `json:"traps"`
	Notes     []string          `json:"notes"`
	Partial   bool              `json:"partial"` // the checkout itself is left to a person

	env   environment
	build string // folder of the NVSHMEM build
	key   string // differs if the NVSHMEM that is built or kept does
}

// A Patch is what nvshmem.patch means for the source.
type Patch struct {
	Path     string             `json:"path"`
	Verdict  string             `json:"verdict"`
	Commits  []PatchCommit      `json:"commits"`
	Offsets  []gitpatch.Offset  `json:"offsets,omitempty"`
	Conflict *gitpatch.Conflict `json:"conflict,omitempty"`
	Fits     Version            `json:"fits"` // the version it was made for, if known
	Root     string             `json:"root"` // top folder of the tree that the source belongs to
	Diff     string             `json:"diff"` // what will be written, as a unified diff of files below Root

	state   gitpatch.State
	prefix  string // the source's path below Root
	changes *patchers.ChangeSet
}

// A PatchCommit is one commit of the patch.
type PatchCommit struct {
	Subject string `json:"subject"`
	In      bool   `json:"in"` // the source has it already
}

// A Step is one part of a rebuild.
type Step struct {
	Name    string   `json:"name"` // "patch", "configure", "build", "clean" or "install"
	Does    string   `json:"does"`
	Dir     string   `json:"dir"`
	Argv    []string `json:"argv,omitempty"`    // none for "patch" and "clean", which run no program
	Set     []Var    `json:"set,omitempty"`     // given to it beside what it inherits
	Removes []string `json:"removes,omitempty"` // paths below Dir
	Product string   `json:"product"`           // that it must make
}

// Blocked reports whether a trap is in the way, so that Run refuses.
func (p *Plan) Blocked() bool {
	return slices.ContainsFunc(p.Traps, func(t Trap) bool { return !t.Despite })
}

// switches are how DeepEP documents that NVSHMEM is configured, and two more that
// leave out what only NVSHMEM's developers run. It costs minutes, and the tests
// and examples of 3.2.5 do not compile with CUDA 13 (measured with 13.0: its
// cudaDeviceProp has no clockRate).
var switches = [...]Var{
	{"NVSHMEM_SHMEM_SUPPORT", "0"},
	{"NVSHMEM_UCX_SUPPORT", "0"},
	{"NVSHMEM_USE_NCCL", "0"},
	{"NVSHMEM_MPI_SUPPORT", "0"},
	{"NVSHMEM_IBGDA_SUPPORT", "1"},
	{"NVSHMEM_PMIX_SUPPORT", "0"},
	{"NVSHMEM_TIMEOUT_DEVICE_POLLING", "0"},
	{"NVSHMEM_USE_GDRCOPY", "1"},
	{"NVSHMEM_BUILD_TESTS", "0"},
	{"NVSHMEM_BUILD_EXAMPLES", "0"},
}

// NewPlan plans the rebuild. It runs no code of the checkout or of NVSHMEM, only
// cmake --version, and writes to neither, unless an interrupted write of patches
// has to be put back. Archives are unpacked into the state folder.
//
// What a person has to see to is no error but a [Trap] or a note.
func NewPlan(ctx context.Context, o Options) (*Plan, error) {
	set, err := parseSet(o.Set)
	if err != nil {
		return nil, err
	}
	tree, err := checkout.Open(o.Checkout)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	p := &Plan{
		Checkout: tree.Root(), env: inherit(o.Env, o.KeepEnv), Files: map[string]string{},
		Inherited: []string{}, Withheld: []string{}, Steps: []Step{}, Traps: []Trap{}, Notes: []string{}, // [] in JSON
	}
	p.Withheld = append(p.Withheld, p.env.withheld...)
	if p.State, err = stateFolder(o.Env, p.Checkout); err != nil {
		return nil, err
	}
	p.build = filepath.Join(p.State, "build")

	files, err := tree.Tree(ctx, nil)
	if err != nil {
		return nil, err
	}
	series, err := readPatch(files.FS)
	if err != nil {
		return nil, err
	}
	script, err := readOptional(files.FS, scriptPath)
	if err != nil {
		return nil, err
	}
	if o.SkipNVSHMEM {
		p.Notes = append(p.Notes, "NVSHMEM is left as it is installed. Whether it uses NCCL was decided when it was built.")
		p.Prefix = p.env.get("NVSHMEM_DIR")
	} else if err := p.planNVSHMEM(ctx, o, set, series); err != nil {
		return nil, err
	}
	key, err := json.Marshal([]any{p.Steps, p.Files, p.Prefix, series})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(key)
	p.key = hex.EncodeToString(sum[:])
	if p.Patch != nil {
		p.Steps = slices.Insert(p.Steps, 0, Step{Name: "patch", Does: p.Patch.does(), Dir: p.Source.Dir, Product: "the changes shown"})
	}
	if script == nil {
		p.Partial = true
		p.Notes = append(p.Notes, fmt.Sprintf("There is no %s in this checkout, and how else it is installed is not guessed. Install it as its own documentation says, with NVSHMEM_DIR set to the NVSHMEM to use.", scriptPath))
	} else if err := p.planInstall(o, set, files.FS, script); err != nil {
		return nil, err
	}
	if err := p.findTraps(ctx, o, set, files.FS, script); err != nil {
		return nil, err
	}
	for _, v := range p.env.vars {
		p.Inherited = append(p.Inherited, v.Name)
	}
	return p, nil
}

// readOptional returns the text of a file, or nil if there is none.
func readOptional(tree fs.FS, path string) ([]byte, error) {
	data, err := fs.ReadFile(tree, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return data, nil
}

// readPatch returns the checkout's patch, or nil.
func readPatch(tree fs.FS) (*gitpatch.Series, error) {
	data, err := readOptional(tree, patchPath)
	if data == nil || err != nil {
		return nil, err
	}
	s, err := gitpatch.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", patchPath, err)
	}
	return s, nil
}

// planNVSHMEM plans the patch, configure and build steps.
func (p *Plan) planNVSHMEM(ctx context.Context, o Options, set []Var, series *gitpatch.Series) error {
	f := finder{
		checkout: p.Checkout, given: o.Source, env: p.env.get("NVSHMEM_SRC"),
		paths: []string{"CMakeLists.txt"}, unpackTo: filepath.Join(p.State, "source"), search: p.env.get("PATH"),
	}
	if series != nil {
		f.paths = series.Paths()
	} else {
		f.paths = []string{"CMakeLists.txt", "src/include/nvshmem.h"}
	}
	var err error
	if p.Source, err = f.find(ctx); err != nil {
		return err
	}
	if p.Source == nil {
		p.Traps = append(p.Traps, noSource(series))
		return nil
	}
	if err := p.judge(ctx, series); err != nil {
		return err
	}
	p.Prefix = o.Prefix
	if p.Prefix == "" {
		name := "nvshmem"
		if p.Source.Version != (Version{}) {
			name += "-" + p.Source.Version.String()
		}
		p.Prefix = filepath.Join(p.State, name)
	}
	if p.Prefix, err = filepath.Abs(p.Prefix); err != nil {
		return err
	}

	env := slices.Clone(switches[:])
	if home := p.cudaHome(); home != "" && p.env.get("CUDA_HOME") == "" {
		env = append(env, Var{"CUDA_HOME", home})
	}
	env = override(env, set)
	configure := []string{"cmake", "-S", p.Source.Dir, "-B", p.build, "-DCMAKE_INSTALL_PREFIX=" + p.Prefix}
	if o.CXXStandard > 0 {
		file := filepath.Join(p.State, "cxx-standard.cmake")
		p.Files[file] = fmt.Sprintf(raiseStandard, o.CXXStandard)
		configure = append(configure, "-DCMAKE_PROJECT_INCLUDE="+file)
	}
	configure = append(configure, o.CMakeArgs...)
	p.Steps = append(p.Steps, Step{
		Name: "configure", Does: "configure NVSHMEM without NCCL, in an empty folder",
		Dir: p.Source.Dir, Argv: configure, Set: env,
		Product: filepath.Join(p.build, "CMakeCache.txt") + " says NVSHMEM_USE_NCCL:BOOL=OFF",
	}, Step{
		Name: "build", Does: "build NVSHMEM and install it",
		Dir: p.Source.Dir, Argv: []string{"cmake", "--build", p.build, "--target", "install", "--parallel", strconv.Itoa(jobs(o))}, Set: env,
		Product: "include/nvshmem.h and lib/ in " + p.Prefix,
	})
	return nil
}

func jobs(o Options) int { return cmp.Or(o.Jobs, runtime.NumCPU()) }

// judge says what the patch means for the source.
func (p *Plan) judge(ctx context.Context, series *gitpatch.Series) error {
	if series == nil {
		p.Notes = append(p.Notes, fmt.Sprintf("There is no %s, so NVSHMEM is built as it is.", patchPath))
		return nil
	}
	root, prefix, err := workTree(p.Source.Dir)
	if err != nil {
		return err
	}
	tree, err := checkout.Open(root)
	if err != nil {
		return err
	}
	defer tree.Close()
	recovered, err := tree.Recover()
	if err != nil {
		return err
	}
	if recovered.ID != "" {
		p.Notes = append(p.Notes, fmt.Sprintf("An interrupted write to %s was put back.", root))
	}
	files, err := tree.Tree(ctx, nil)
	if err != nil {
		return err
	}
	source, err := fs.Sub(files.FS, prefix)
	if err != nil {
		return err
	}
	v, err := series.Judge(source)
	if err != nil {
		return fmt.Errorf("judging %s: %w", patchPath, err)
	}
	set := &patchers.ChangeSet{}
	for _, f := range v.Changes.Files {
		f.Path = path.Join(prefix, f.Path)
		set.Files = append(set.Files, f)
	}
	diff, err := set.Unified()
	if err != nil {
		return err
	}
	p.Patch = &Patch{
		Path: patchPath, Verdict: v.State.String(), Offsets: v.Offsets, Conflict: v.Conflict, Fits: fits(series),
		Root: root, Diff: diff, state: v.State, prefix: prefix, changes: set,
	}
	for i, c := range series.Commits {
		p.Patch.Commits = append(p.Patch.Commits, PatchCommit{c.Subject, v.In[i]})
	}
	if v.Conflict != nil {
		p.Traps = append(p.Traps, misfit(p.Source, p.Patch))
	}
	return nil
}

// workTree returns the top folder of the tree that dir belongs to, and dir's path
// in it. That is the git work tree, if there is one, because ncclfix undo looks
// for writes to that; otherwise it is dir itself.
func workTree(dir string) (root, prefix string, err error) {
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", "", err
	}
	root, scope, err := checkout.Find([]string{dir})
	if err != nil {
		return "", "", err
	}
	if _, err := os.Lstat(filepath.Join(root, ".git")); err != nil {
		return dir, ".", nil
	}
	return root, scope[0], nil
}

// does says what the patch step does.
func (p *Patch) does() string {
	switch p.state {
	case gitpatch.Applied:
		return p.Path + " is applied already: nothing to do"
	case gitpatch.Conflicts:
		return p.Path + " does not apply"
	}
	left := 0
	for _, c := range p.Commits {
		if !c.In {
			left++
		}
	}
	return fmt.Sprintf("apply %s of %s to %s", count(left, "commit"), p.Path, count(len(p.changes.Files), "file"))
}

// count returns "1 commit" or "5 commits".
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// planInstall plans the clean and install steps.
func (p *Plan) planInstall(o Options, set []Var, tree fs.FS, script []byte) error {
	old, err := leftovers(tree)
	if err != nil {
		return err
	}
	if len(old) > 0 {
		p.Steps = append(p.Steps, Step{
			Name: "clean", Does: "remove what earlier builds left, which would be taken for new though it is linked to another NVSHMEM",
			Dir: p.Checkout, Removes: old, Product: "nothing of it is left",
		})
	}
	var env []Var
	dir := p.Prefix
	if dir != "" {
		env = append(env, Var{"NVSHMEM_DIR", dir})
	}
	env = append(env, Var{"NVSHMEM_USE_NCCL", "0"})
	if dir != "" {
		env = append(env,
			Var{"LD_LIBRARY_PATH", prepend(filepath.Join(dir, "lib"), p.env.get("LD_LIBRARY_PATH"))},
			Var{"PATH", prepend(filepath.Join(dir, "bin"), p.env.get("PATH"))})
	}
	env = append(env, Var{"PIP_FORCE_REINSTALL", "1"}, Var{"PIP_NO_DEPS", "1"})
	p.Notes = append(p.Notes, "PIP_FORCE_REINSTALL is set because pip would keep what is installed if the new wheel has the same version, and PIP_NO_DEPS so that it does not reinstall PyTorch with it. --set changes both.")
	if o.Jobs > 0 {
		env = append(env, Var{"MAX_JOBS", strconv.Itoa(o.Jobs)}) // read by PyTorch's extension builder
	}
	p.Steps = append(p.Steps, Step{
		Name: "install", Does: "build the checkout's wheel and install it",
		Dir: p.Checkout, Argv: []string{"bash", "-e", scriptPath}, Set: override(env, set),
		Product: fmt.Sprintf("a new wheel in dist/, installed for the %s on PATH, and its modules can be imported", interpreter(script)),
	})
	return nil
}

var leftover = regexp.MustCompile(`^(lib|temp|bdist)(\.|$)`)

// leftovers returns what setuptools left in build/. setuptools builds an
// extension anew only if its sources are younger, and knows nothing of the
// libraries that it is linked to.
func leftovers(tree fs.FS) ([]string, error) {
	if info, err := fs.Stat(tree, "build"); err != nil || !info.IsDir() {
		return nil, nil
	}
	entries, err := fs.ReadDir(tree, "build")
	if err != nil {
		return nil, fmt.Errorf("reading build: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if e.IsDir() && leftover.MatchString(e.Name()) {
			paths = append(paths, "build/"+e.Name())
		}
	}
	return paths, nil
}

var pythonCommand = regexp.MustCompile(`(?m)^\s*(?:exec\s+)?(python[0-9.]*)\s`)

// interpreter returns the name of the interpreter that a script runs first.
func interpreter(script []byte) string {
	if m := pythonCommand.FindSubmatch(script); m != nil {
		return string(m[1])
	}
	return "python"
}

// raiseStandard makes CMake compile every target as one C++ standard. NVSHMEM up
// to 3.2.5 sets C++11 target by target, which no flag gets past.
const raiseStandard = `# Written by ncclfix rebuild --cxx-standard.
function(ncclfix_set_standard dir)
  get_property(targets DIRECTORY "${dir}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type MATCHES "EXECUTABLE|STATIC_LIBRARY|SHARED_LIBRARY|MODULE_LIBRARY|OBJECT_LIBRARY")
      set_target_properties(${target} PROPERTIES CXX_STANDARD %[1]d CUDA_STANDARD %[1]d)
    endif()
  endforeach()
  get_property(subdirs DIRECTORY "${dir}" PROPERTY SUBDIRECTORIES)
  foreach(subdir IN LISTS subdirs)
    ncclfix_set_standard("${subdir}")
  endforeach()
endfunction()
if(CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR)
  cmake_language(DEFER CALL ncclfix_set_standard "${CMAKE_SOURCE_DIR}")
endif()
`

// stateFolder returns the folder of a checkout's state.
func stateFolder(env []string, checkout string) (string, error) {
	base := lookupEnv(env, "XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		home := lookupEnv(env, "HOME")
		if !filepath.IsAbs(home) {
			return "", errors.New("finding a place for the state: neither XDG_STATE_HOME nor HOME is set")
		}
		base = filepath.Join(home, ".local", "state")
	}
	sum := sha256.Sum256([]byte(checkout))
	return filepath.Join(base, "ncclfix", "rebuild", hex.EncodeToString(sum[:8])), nil
}

// cudaHome returns the folder of the CUDA toolkit that NVSHMEM will be built
// with, or "".
func (p *Plan) cudaHome() string {
	if home := p.env.get("CUDA_HOME"); home != "" {
		return home
	}
	if nvcc := lookPath("nvcc", p.env.get("PATH")); nvcc != "" {
		return filepath.Dir(filepath.Dir(nvcc))
	}
	if _, err := os.Stat("/usr/local/cuda/bin/nvcc"); err == nil {
		return "/usr/local/cuda"
	}
	return ""
}
