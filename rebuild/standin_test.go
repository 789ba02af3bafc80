package rebuild

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary stand in for cmake, python and pip: with
// "standin DIR NAME ARG…" it is the program NAME of the world in DIR.
func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "standin" {
		s := standIn{dir: os.Args[2], name: os.Args[3], args: os.Args[4:]}
		if err := s.run(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", s.name, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A call is one call of a program, as it was called.
type call struct {
	Argv []string
	Dir  string
	Env  []string // sorted, without what shells and the race detector add
}

// A standIn notes how it is called, and then makes what the real program would
// make, unless the file "fault" in its world names it.
type standIn struct {
	dir, name string
	args      []string
}

func (s standIn) run() error {
	cwd, err := os.Getwd()
	if err != nil {
		return err
	}
	c := call{Argv: append([]string{s.name}, s.args...), Dir: cwd}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if !slices.Contains([]string{"PWD", "OLDPWD", "SHLVL", "_", "GORACE"}, name) {
			c.Env = append(c.Env, v)
		}
	}
	slices.Sort(c.Env)
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, "calls"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	fault, _ := os.ReadFile(filepath.Join(s.dir, "fault"))
	switch s.name {
	case "cmake":
		return s.cmake(string(fault))
	case "python":
		return s.python(string(fault))
	case "pip":
		return s.pip(string(fault))
	}
	return fmt.Errorf("no such stand-in")
}

func write(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

func (s standIn) cmake(fault string) error {
	switch {
	case slices.Equal(s.args, []string{"--version"}):
		version, err := os.ReadFile(filepath.Join(s.dir, "cmake-version"))
		if err != nil {
			version = []byte("3.25.1")
		}
		fmt.Printf("cmake version %s\n\nCMake suite maintained by its authors.\n", version)
		return nil

	case s.args[0] == "-S" && s.args[2] == "-B":
		build := s.args[3]
		prefix, ok := strings.CutPrefix(s.args[4], "-DCMAKE_INSTALL_PREFIX=")
		if !ok {
			return fmt.Errorf("no prefix")
		}
		fmt.Println("-- Configuring")
		if fault == "configure" {
			return fmt.Errorf("could not find CUDA")
		}
		nccl := "ON"
		if os.Getenv("NVSHMEM_USE_NCCL") == "0" {
			nccl = "OFF"
		}
		if fault == "nccl stays on" {
			nccl = "ON"
		}
		return write(filepath.Join(build, "CMakeCache.txt"), "CMAKE_INSTALL_PREFIX:PATH="+prefix+"\nNVSHMEM_USE_NCCL:BOOL="+nccl+"\n")

	case s.args[0] == "--build":
		build := s.args[1]
		cache, err := os.ReadFile(filepath.Join(build, "CMakeCache.txt"))
		if err != nil {
			return err
		}
		prefix, _, _ := strings.Cut(strings.TrimPrefix(string(cache), "CMAKE_INSTALL_PREFIX:PATH="), "\n")
		fmt.Println("[ 60%] Building CXX object queue.o")
		switch fault {
		case "build at 60%":
			return fmt.Errorf("queue.c:7: error")
		case "disk full":
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = full.WriteString("an object file")
			return err
		case "build makes nothing":
			return nil
		case "build hangs":
			return s.hang()
		}
		header, lib := filepath.Join(prefix, "include/nvshmem.h"), filepath.Join(prefix, "lib/libnvshmem_host.so")
		for _, file := range []string{header, lib} {
			if err := write(file, "nvshmem\n"); err != nil {
				return err
			}
		}
		fmt.Println("[100%] Built target install")
		return write(filepath.Join(build, "install_manifest.txt"), lib)
	}
	return fmt.Errorf("unexpected arguments %q", s.args)
}

// hang starts a process that ignores SIGTERM and never ends, in a process group
// of its own, as ninja does. It notes its id and waits for it.
func (s standIn) hang() error {
	cmd := exec.Command("/bin/sh", "-c", `trap "" TERM; while :; do sleep 1; done`)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := write(filepath.Join(s.dir, "hanging"), fmt.Sprint(cmd.Process.Pid)); err != nil {
		return err
	}
	return cmd.Wait()
}

// wheelText makes a wheel whose module says when it was built.
func wheelText(file string) error {
	source := fmt.Sprintf("built_at = %d\n", time.Now().UnixNano())
	sum := sha256.Sum256([]byte(source))
	hash := "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:])
	record := fmt.Sprintf("deep_ep/__init__.py,%s,%d\ndeep_ep-1.0.dist-info/RECORD,,\n", hash, len(source))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	z := zip.NewWriter(f)
	for _, part := range [][2]string{{"deep_ep/__init__.py", source}, {"deep_ep-1.0.dist-info/RECORD", record}} {
		w, err := z.Create(part[0])
		if err != nil {
			return err
		}
		if _, err := w.Write([]byte(part[1])); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

func (s standIn) python(fault string) error {
	switch {
	case slices.Equal(s.args, []string{"setup.py", "bdist_wheel"}):
		if missing := lacks(os.Getenv("NVSHMEM_DIR")); missing != "" {
			return fmt.Errorf("NVSHMEM_DIR has no %s", missing)
		}
		fmt.Println("running bdist_wheel")
		switch fault {
		case "python":
			return fmt.Errorf("No module named 'torch'")
		case "no wheel":
			return nil
		}
		return wheelText("dist/deep_ep-1.0-py3-none-any.whl")

	case s.args[0] == "-c" && s.args[1] == probe:
		out, name, modules := s.args[2], s.args[3], s.args[4:]
		site := filepath.Join(s.dir, "site")
		record, err := os.ReadFile(filepath.Join(site, name+".RECORD"))
		if err != nil || fault == "import" {
			return fmt.Errorf("ModuleNotFoundError: No module named %q", name)
		}
		a := answer{Interpreter: "/usr/bin/python", Folder: site, Record: string(record), Files: map[string]string{}}
		for _, m := range modules {
			a.Files[m] = filepath.Join(site, m, "__init__.py")
			if fault == "another module" {
				a.Files[m] = filepath.Join("/elsewhere", m, "__init__.py")
			}
		}
		data, err := json.Marshal(a)
		if err != nil {
			return err
		}
		return os.WriteFile(out, data, 0o644)
	}
	return fmt.Errorf("unexpected arguments %q", s.args)
}

func (s standIn) pip(fault string) error {
	if len(s.args) != 2 || s.args[0] != "install" {
		return fmt.Errorf("unexpected arguments %q", s.args)
	}
	if fault == "pip" {
		return fmt.Errorf("ERROR: Could not install packages")
	}
	z, err := zip.OpenReader(s.args[1])
	if err != nil {
		return err
	}
	defer z.Close()
	record := filepath.Join(s.dir, "site", "deep_ep.RECORD")
	if _, err := os.Stat(record); err == nil && os.Getenv("PIP_FORCE_REINSTALL") != "1" {
		fmt.Println("deep_ep is already installed with the same version as the provided wheel.")
		return nil
	}
	f, err := z.Open("deep_ep-1.0.dist-info/RECORD")
	if err != nil {
		return err
	}
	defer f.Close()
	var b strings.Builder
	buf := make([]byte, 4096)
	for n, err := f.Read(buf); n > 0 || err == nil; n, err = f.Read(buf) {
		b.Write(buf[:n])
	}
	return write(record, b.String())
}
