package rebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ncclfix/patchers/gitpatch"
)

// A Trap is something that would make the rebuild fail, mostly late, or a
// question that only a person can answer.
type Trap struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Way     string `json:"way"`     // what to do about it
	Despite bool   `json:"despite"` // the person wants to go on in spite of it
}

// noSource is the trap that there is no source to build NVSHMEM from.
func noSource(series *gitpatch.Series) Trap {
	t := Trap{Code: "source", Message: "NVSHMEM's source was not found: neither --nvshmem-src nor NVSHMEM_SRC is set, and no folder in the checkout or its third-party/ has the files that " + patchPath + " changes"}
	which := "NVSHMEM's source"
	if series == nil {
		t.Message = "there is no " + patchPath + " (DeepEP dropped it in b306af0), and no NVSHMEM source is given by --nvshmem-src or NVSHMEM_SRC"
	} else if v := fits(series); v != (Version{}) {
		which += ", version " + v.String() + ","
	}
	t.Way = "give the folder or archive of " + which + " by --nvshmem-src, or keep the installed NVSHMEM with --skip-nvshmem"
	return t
}

// misfit is the trap that the patch does not apply.
func misfit(s *Source, p *Patch) Trap {
	c := p.Conflict
	var b strings.Builder
	fmt.Fprintf(&b, "%s does not apply to NVSHMEM %s in %s: %v", p.Path, s.Version, s.Dir, c)
	if c.Hunk > 0 {
		fmt.Fprintf(&b, "; expected %q", strings.TrimRight(c.Expected[c.Matched], "\r\n"))
		if c.Near > 0 {
			fmt.Fprintf(&b, " at line %d, behind %s that fit", c.Near, count(c.Matched, "line"))
		}
	}
	way := "give the source that the patch was made for by --nvshmem-src"
	if p.Fits != (Version{}) {
		way = fmt.Sprintf("the patch was made for NVSHMEM %s: give its source by --nvshmem-src", p.Fits)
	}
	return Trap{Code: "patch", Message: b.String(), Way: way + ", or keep the installed NVSHMEM with --skip-nvshmem"}
}

// certain are the traps that no --despite gets past.
var certain = [...]string{"source", "patch"}

// findTraps looks for what is known to go wrong.
func (p *Plan) findTraps(ctx context.Context, o Options, set []Var, tree fs.FS, script []byte) error {
	if p.Source != nil {
		if err := p.cmakeTrap(ctx); err != nil {
			return err
		}
		p.cudaTraps(o)
		p.gdrcopyTraps()
	}
	if o.SkipNVSHMEM {
		p.nvshmemTrap()
	}
	if err := p.diskTrap(); err != nil {
		return err
	}
	if err := p.isolationTrap(set, tree, script); err != nil {
		return err
	}
	for _, code := range o.Despite {
		i := slices.IndexFunc(p.Traps, func(t Trap) bool { return t.Code == code })
		switch {
		case slices.Contains(certain[:], code):
			return fmt.Errorf("refusing --despite %s: there is no way around it", code)
		case i >= 0:
			p.Traps[i].Despite = true
		}
	}
	return nil
}

func (p *Plan) trap(code, message, way string) {
	p.Traps = append(p.Traps, Trap{Code: code, Message: message, Way: way})
}

// setting returns a variable as the step sees it.
func (p *Plan) setting(step, name string) string {
	i := slices.IndexFunc(p.Steps, func(s Step) bool { return s.Name == step })
	if i < 0 {
		return ""
	}
	return lookupEnv(p.env.with(p.Steps[i].Set), name)
}

// sourceText returns a file of the source as it will be built, or "".
func (p *Plan) sourceText(name string) string {
	if p.Patch != nil {
		for _, f := range p.Patch.changes.Files {
			if f.Path == path.Join(p.Patch.prefix, name) {
				return string(f.New)
			}
		}
	}
	text, _ := os.ReadFile(filepath.Join(p.Source.Dir, filepath.FromSlash(name)))
	return string(text)
}

var (
	cmakeMinimum = regexp.MustCompile(`(?i)cmake_minimum_required\s*\(\s*VERSION\s+(\d+)\.(\d+)`)
	cmakeVersion = regexp.MustCompile(`cmake version (\d+)\.(\d+)`)
)

// cmakeTrap asks cmake for its version. NVSHMEM says which it needs; where it
// does not, that is 3.19, which its documentation asks for.
func (p *Plan) cmakeTrap(ctx context.Context) error {
	need := [2]int{3, 19}
	if m := cmakeMinimum.FindStringSubmatch(p.sourceText("CMakeLists.txt")); m != nil {
		need = numbers(m)
	}
	way := fmt.Sprintf("install CMake %d.%d or later, for example by pip install cmake, and put it on PATH", need[0], need[1])
	cmake := lookPath("cmake", p.setting("configure", "PATH"))
	if cmake == "" {
		p.trap("cmake", "there is no cmake on PATH", way)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, cmake, "--version")
	cmd.Env = p.env.with(nil)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("running %s --version: %w", cmake, err)
	}
	m := cmakeVersion.FindStringSubmatch(string(out))
	if m == nil {
		return fmt.Errorf("reading the version of %s: it says %q", cmake, firstLine(string(out)))
	}
	if have := numbers(m); slices.Compare(have[:], need[:]) < 0 {
		p.trap("cmake", fmt.Sprintf("%s has version %d.%d, and NVSHMEM needs %d.%d", cmake, have[0], have[1], need[0], need[1]), way)
	}
	return nil
}

func numbers(match []string) [2]int {
	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])
	return [2]int{major, minor}
}

var (
	cudaProject = regexp.MustCompile(`(?is)\bproject\s*\([^)]*\bCUDA\b`)
	cudaDefine  = regexp.MustCompile(`(?m)^#define CUDA_VERSION (\d+)`)
)

// cudaTraps look whether there is a CUDA toolkit, and whether its headers can be
// compiled as the C++ that NVSHMEM asks for.
func (p *Plan) cudaTraps(o Options) {
	if !cudaProject.MatchString(p.sourceText("CMakeLists.txt")) {
		return
	}
	home := p.setting("configure", "CUDA_HOME")
	if home == "" || lookPath("nvcc", filepath.Join(home, "bin")) == "" {
		p.trap("cuda", fmt.Sprintf("there is no CUDA compiler: CUDA_HOME is %q", home), "install the CUDA toolkit, or set CUDA_HOME to its folder")
		return
	}
	text, _ := os.ReadFile(filepath.Join(home, "include", "cuda.h"))
	m := cudaDefine.FindSubmatch(text)
	if m == nil {
		return
	}
	cuda, _ := strconv.Atoi(string(m[1]))
	v := p.Source.Version
	if cuda >= 13000 && v != (Version{}) && slices.Compare(v[:], []int{3, 2, 5}) <= 0 && o.CXXStandard < 17 {
		p.trap("cxx-standard",
			fmt.Sprintf("CUDA %d.%d needs C++17, and NVSHMEM %s is compiled as C++11", cuda/1000, cuda%1000/10, v),
			"use --cxx-standard 17, or an older CUDA by CUDA_HOME")
	}
}

const ibgdaPath = "src/modules/transport/ibgda/ibgda.cpp"

// gdrcopyTraps look whether NVSHMEM_USE_GDRCOPY can be what it is.
func (p *Plan) gdrcopyTraps() {
	if off(p.setting("configure", "NVSHMEM_USE_GDRCOPY")) {
		if !off(p.setting("configure", "NVSHMEM_IBGDA_SUPPORT")) && usedOutside(p.sourceText(ibgdaPath), "gdrcopy_ftable", "NVSHMEM_USE_GDRCOPY") {
			p.trap("ibgda", "IBGDA needs GDRCopy in these sources: "+ibgdaPath+" uses gdrcopy_ftable also where NVSHMEM_USE_GDRCOPY is off",
				"use --set NVSHMEM_USE_GDRCOPY=1 or --set NVSHMEM_IBGDA_SUPPORT=0")
		}
		return
	}
	if !strings.Contains(p.sourceText("CMakeLists.txt"), "gdrapi.h") {
		return
	}
	places := []string{p.Source.Dir, filepath.Join(p.Source.Dir, "include_gdrcopy"), "/usr", "/usr/local", "/usr/local/gdrcopy", "/usr/local/gdrdrv"}
	if home := p.setting("configure", "GDRCOPY_HOME"); home != "" {
		places = append(places, home)
	}
	for _, dir := range places {
		for _, sub := range []string{"include", "include_gdrcopy", ""} {
			if _, err := os.Stat(filepath.Join(dir, sub, "gdrapi.h")); err == nil {
				return
			}
		}
	}
	p.trap("gdrcopy", "NVSHMEM_USE_GDRCOPY is on, and GDRCopy's gdrapi.h was not found",
		"set GDRCOPY_HOME to the folder that has include/gdrapi.h, or use --set NVSHMEM_USE_GDRCOPY=0")
}

var conditional = regexp.MustCompile(`^\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)`)

// usedOutside reports whether a C source has name in a place where macro need
// not be defined. It looks at lines and knows the plain forms of conditions.
func usedOutside(source, name, macro string) bool {
	word := regexp.MustCompile(`\b` + name + `\b`)
	var under []bool // for each open condition, whether macro is defined there
	for line := range strings.Lines(source) {
		m := conditional.FindStringSubmatch(line)
		switch {
		case m == nil:
			code, _, _ := strings.Cut(line, "//")
			if word.MatchString(code) && !slices.Contains(under, true) {
				return true
			}
		case m[1] == "endif":
			under = under[:max(0, len(under)-1)]
		case m[1] == "else" || m[1] == "elif":
			if len(under) > 0 {
				under[len(under)-1] = false
			}
		default:
			under = append(under, m[1] != "ifndef" && strings.Contains(m[2], macro) && !strings.Contains(m[2], "!"))
		}
	}
	return false
}

// nvshmemTrap looks at the NVSHMEM that is kept.
func (p *Plan) nvshmemTrap() {
	dir := p.env.get("NVSHMEM_DIR")
	if dir == "" {
		return // the checkout finds its own
	}
	if missing := lacks(dir); missing != "" {
		p.trap("nvshmem-dir", fmt.Sprintf("NVSHMEM_DIR is %s, which has no %s", dir, missing),
			"set NVSHMEM_DIR to a full installation of NVSHMEM, or build one with --nvshmem-src")
	}
}

// lacks returns what the folder dir has not of an installed NVSHMEM, or "".
func lacks(dir string) string {
	if info, err := os.Stat(filepath.Join(dir, "include", "nvshmem.h")); err != nil || !info.Mode().IsRegular() {
		return "include/nvshmem.h"
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "lib")); err != nil || len(entries) == 0 {
		return "lib/"
	}
	return ""
}

// What a build takes, with some room: NVSHMEM for four architectures, and an
// extension module.
const (
	buildBytes   = 4 << 30
	installBytes = 1 << 30
)

// diskTrap looks whether there is room for what will be built.
func (p *Plan) diskTrap() error {
	need := map[string]int64{}
	if p.Source != nil {
		need[p.State] += buildBytes
		need[p.Prefix] += installBytes
	}
	need[p.Checkout] += installBytes
	type disk struct {
		dir        string
		free, need int64
	}
	disks := map[uint64]*disk{} // by device
	for dir, n := range need {
		for ; ; dir = filepath.Dir(dir) { // the folder may have to be made
			var at syscall.Stat_t
			err := syscall.Stat(dir, &at)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			var fsys syscall.Statfs_t
			if err == nil {
				err = syscall.Statfs(dir, &fsys)
			}
			if err != nil {
				return fmt.Errorf("reading the room in %s: %w", dir, err)
			}
			d := disks[uint64(at.Dev)]
			if d == nil {
				d = &disk{dir: dir, free: int64(fsys.Bavail) * int64(fsys.Bsize)}
				disks[uint64(at.Dev)] = d
			}
			d.need += n
			d.dir = min(d.dir, dir)
			break
		}
	}
	for _, d := range disks {
		if d.free < d.need {
			p.trap("disk", fmt.Sprintf("the disk with %s has %.1f GB left, and the build may take %.1f GB", d.dir, gb(d.free), gb(d.need)),
				"make room, set XDG_STATE_HOME to a folder on a larger disk, or go on with --despite disk")
			break
		}
	}
	return nil
}

func gb(bytes int64) float64 { return float64(bytes) / 1e9 }

var (
	buildSystem  = regexp.MustCompile(`(?m)^\s*\[build-system\]`)
	importsTorch = regexp.MustCompile(`(?m)^\s*(?:import|from)\s+torch\b`)
	pipCommand   = regexp.MustCompile(`(?m)^[^#\n]*\bpip[0-9.]*\s+(?:install|wheel)\b([^#\n]*)|^[^#\n]*\bpython[0-9.]*\s+-m\s+build\b([^#\n]*)`)
	torchNeeded  = regexp.MustCompile(`["']torch\b`)
)

// isolationTrap looks whether pip would build the checkout in an environment of
// its own, without PyTorch, though its setup.py imports it. That is so where
// install.sh has pip or build make the wheel. Whether pip isolates a checkout
// without pyproject.toml depends on its version; there the trap is set, too.
func (p *Plan) isolationTrap(set []Var, tree fs.FS, script []byte) error {
	setup, err := readOptional(tree, "setup.py")
	if err != nil {
		return err
	}
	project, err := readOptional(tree, "pyproject.toml")
	if err != nil {
		return err
	}
	if script == nil || !importsTorch.Match(setup) || buildSystem.Match(project) && torchNeeded.Match(project) {
		return nil
	}
	if off := lookup(set, "PIP_NO_BUILD_ISOLATION"); off != "" || p.env.get("PIP_NO_BUILD_ISOLATION") != "" {
		return nil
	}
	for _, m := range pipCommand.FindAllSubmatch(script, -1) {
		args := slices.Concat(m[1], m[2])
		isBuild := m[2] != nil
		if bytes.Contains(args, []byte("--no-build-isolation")) || bytes.Contains(args, []byte("--no-isolation")) {
			continue
		}
		local := isBuild
		for _, arg := range bytes.Fields(args) {
			path := bytes.Trim(arg, `"'`)
			local = local || bytes.HasPrefix(path, []byte(".")) && !bytes.HasSuffix(path, []byte(".whl"))
		}
		if local {
			p.trap("isolation", scriptPath+" builds in an environment of its own, in which setup.py cannot import torch: "+strings.TrimSpace(string(m[0])),
				"use --set PIP_NO_BUILD_ISOLATION=0, which is how pip spells that there shall be none, or --no-isolation of build")
			return nil
		}
	}
	return nil
}
