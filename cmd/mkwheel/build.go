package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A target is what a wheel is built for.
type target struct {
	goarch  string
	machine elf.Machine
	uname   string // what uname -m and the tags of wheels call it
}

var targets = map[string]target{
	"amd64": {"amd64", elf.EM_X86_64, "x86_64"},
	"arm64": {"arm64", elf.EM_AARCH64, "aarch64"},
}

// platforms returns where the wheel can be installed. A program that loads no
// library runs with any C library, so that both kinds of platform are told, each
// with the oldest version that pip and uv know by that name. They are sorted, as the
// specification wants.
func (t target) platforms() []string {
	return []string{
		"manylinux2014_" + t.uname,
		"manylinux_2_17_" + t.uname,
		"musllinux_1_1_" + t.uname,
	}
}

// tag returns the tag of the wheel: any Python 3, no ABI, the platforms.
func (t target) tag() string {
	return "py3-none-" + strings.Join(t.platforms(), ".")
}

// build links the program statically. The C library's own user and host lookups
// would load libraries all the same, so Go's are used; a warning of the linker,
// which is how it would tell of them, is an error. What makes the program need a
// newer processor, or the bytes depend on the machine, is set here. Go's own record
// of the revision is left out: it has none in a linked work tree. Release is what
// ncclfix version prints.
func build(ctx context.Context, root, program, release string, t target) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "netgo,osusergo", "-o", program,
		"-ldflags", "-s -w -X 'main.release="+release+"' -linkmode external -extldflags '-static -Wl,--fatal-warnings'",
		"./cmd/ncclfix")
	cmd.Dir = root
	cmd.Env = append(os.Environ(),
		"CGO_ENABLED=1", "GOOS=linux", "GOARCH="+t.goarch, "GOAMD64=v1", "GOARM64=v8.0",
		"CGO_CFLAGS=-O2", "CGO_CPPFLAGS=", "CGO_LDFLAGS=")
	if t.goarch != runtime.GOARCH && os.Getenv("CC") == "" {
		cc := t.uname + "-linux-gnu-gcc"
		if _, err := exec.LookPath(cc); err != nil {
			return fmt.Errorf("building for %s needs %s (Debian: gcc-%s-linux-gnu), or CC", t.goarch, cc, strings.ReplaceAll(t.uname, "_", "-"))
		}
		cmd.Env = append(cmd.Env, "CC="+cc)
	}
	if _, err := outputOf(cmd); err != nil {
		return fmt.Errorf("building ncclfix: %w", err)
	}
	return nil
}

// checkELF returns an error unless the program is one for the target that needs
// no interpreter and no library.
func checkELF(program string, t target) error {
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Machine != t.machine || f.Class != elf.ELFCLASS64 {
		return fmt.Errorf("it is for %v, %v; %v is wanted", f.Machine, f.Class, t.machine)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New("it is not statically linked: it names an interpreter")
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return err
	}
	if len(libraries) > 0 {
		return fmt.Errorf("it is not statically linked: it needs %s", strings.Join(libraries, ", "))
	}
	return nil
}

// licenses returns the license files, by their path below the folder for licenses,
// of all that the program is made of: ncclfix, the modules that it was built from,
// and Go.
func licenses(ctx context.Context, root, program string) (map[string][]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	goroot, err := output(ctx, root, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{".": root, "go": goroot}
	if len(info.Deps) > 0 {
		args := []string{"list", "-m", "-f", "{{.Path}}\t{{.Dir}}"}
		for _, dep := range info.Deps {
			args = append(args, dep.Path)
		}
		listed, err := output(ctx, root, "go", args...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(listed) {
			name, dir, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			dirs[name] = dir
		}
	}
	all := map[string][]byte{}
	for name, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		n := len(all)
		for _, e := range entries {
			if !e.Type().IsRegular() || !isLicense(e.Name()) {
				continue
			}
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			all[path.Join(name, e.Name())] = bytes.ToValidUTF8(data, []byte("?"))
		}
		if len(all) == n {
			return nil, fmt.Errorf("no license in %s", dir)
		}
	}
	return all, nil
}

func isLicense(name string) bool {
	return slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"}, func(prefix string) bool {
		return strings.HasPrefix(strings.ToUpper(name), prefix) && path.Ext(name) != ".go"
	})
}
