package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		"1.2.3":             "1.2.3",
		"v1.2.3":            "1.2.3",
		"v1.02.3-rc.1":      "1.2.3rc1",
		"v1.2.3-alpha.10":   "1.2.3a10",
		"1.2.3b2":           "1.2.3b2",
		"v0.1.0-rc1":        "0.1.0rc1",
		"2026.12":           "2026.12",
		"1.0.post1.dev03":   "1.0.post1.dev3",
		"1.2.3+CUDA.12":     "1.2.3+cuda.12",
		"v1.2.3-0.20261201": "",
		"1.2.x":             "",
		"v":                 "",
		"":                  "",
		"1.0+":              "",
		"1.0/../../x":       "",
		"1.0\nName: other":  "",
	} {
		got, err := normalize(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("normalize(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestVersion(t *testing.T) {
	const dev = ".dev20261201120000+g0123456789ab"
	for _, c := range []struct {
		tag             string
		exact, modified bool
		want            string
	}{
		{"", false, false, "0.0.0" + dev},
		{"", false, true, "0.0.0" + dev + ".dirty"},
		{"v1.2.3", true, false, "1.2.3"},
		{"v1.2.3", true, true, "1.2.4" + dev + ".dirty"},
		{"v1.2.3", false, false, "1.2.4" + dev},
		{"v1.2.9", false, true, "1.2.10" + dev + ".dirty"},
		{"v7", false, false, "8" + dev},
		{"v1.2.3-rc.1", true, false, "1.2.3rc1"},
		{"v1.2.3-rc.1", false, false, "1.2.3rc2" + dev},
		{"v1.2.3+local", false, false, "1.2.4" + dev},
		{"v1.2.3.dev4", true, false, "1.2.3.dev4"},
		{"v1.2.3.dev4", false, false, ""},
		{"v1-final", true, false, ""},
	} {
		s := state{c.tag, c.exact, "0123456789abcdef", time.Unix(1796126400, 0).UTC(), c.modified}
		got, err := s.version()
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: version %q, %v; want %q", s, got, err, c.want)
		}
	}
}

func TestExamine(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=A", "-c", "user.email=a@example.com"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=2026-12-01T12:00:00Z")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	expect := func(prefix, suffix string) {
		t.Helper()
		s, err := examine(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.version()
		if err != nil || !strings.HasPrefix(got, prefix) || !strings.HasSuffix(got, suffix) {
			t.Errorf("version %q, %v; want %s...%s", got, err, prefix, suffix)
		}
		if n, err := normalize(got); n != got || err != nil {
			t.Errorf("normalize(%q) = %q, %v", got, n, err)
		}
	}
	git("init", "-q")
	if s, err := examine(t.Context(), dir); err == nil {
		t.Errorf("without a commit: %+v", s)
	}
	git("commit", "-q", "--allow-empty", "-m", "one")
	expect("0.0.0.dev20261201120000+g", "")
	git("tag", "-a", "-m", "one", "v0.1.0")
	git("tag", "newest") // is no version
	expect("0.1.0", "0.1.0")
	git("commit", "-q", "--allow-empty", "-m", "two")
	expect("0.1.1.dev20261201120000+g", "")
	git("tag", "v0.2.0-rc.1")
	expect("0.2.0rc1", "0.2.0rc1")
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	expect("0.2.0rc2.dev20261201120000+g", ".dirty")
	if s, _ := examine(t.Context(), dir); !regexp.MustCompile(`^revision [0-9a-f]{40} of 2026-12-01T12:00:00Z, modified$`).MatchString(s.String()) {
		t.Errorf("it is called %q", s)
	}
}

func TestFileTime(t *testing.T) {
	for in, want := range map[string]string{
		"":              "1980-01-01",
		"0":             "1980-01-01",
		"1796126400":    "2026-12-01",
		"yesterday":     "0001-01-01",
		"9999999999999": "0001-01-01",
	} {
		got, err := fileTime(in)
		if got.Format("2006-01-02") != want || (err == nil) != !got.IsZero() {
			t.Errorf("fileTime(%q) = %v, %v; want %s", in, got, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for want, args := range map[string][]string{
		`unexpected argument "wheel"`:                         {"wheel"},
		"flag provided but not defined: -frobnicate":          {"-frobnicate"},
		`unknown -goarch "riscv64": not one of amd64, arm64`:  {"-goarch", "riscv64"},
		`"one" is no version of a Python package; 1.2.3, `:    {"-version", "one"},
		"building ncclfix: ":                                  {"-version", "1.0"},
		`SOURCE_DATE_EPOCH is "now", which is no time in sec`: {"-version", "1.0"},
	} {
		t.Run(want, func(t *testing.T) {
			t.Setenv("CC", "/bin/false")
			if strings.Contains(want, "EPOCH") {
				t.Setenv("SOURCE_DATE_EPOCH", "now")
			}
			dir := filepath.Join(t.TempDir(), "dist")
			var stdout strings.Builder
			err := run(t.Context(), append([]string{"-o", dir}, args...), &stdout)
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %v; want %s", err, want)
			}
			if _, err := os.Stat(dir); err == nil || stdout.Len() > 0 {
				t.Errorf("%s was made; stdout %q", dir, stdout.String())
			}
		})
	}
}

// need returns the path of a program, and skips the test where it is not
// installed, or fails it where everything has to be there.
func need(t *testing.T, name string) string {
	t.Helper()
	p, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CI") != "":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	return p
}

const testVersion = "1.2.3rc4"

// makeWheel builds a wheel and returns its path.
func makeWheel(t *testing.T, goarch string) string {
	t.Helper()
	if goarch != runtime.GOARCH {
		need(t, targets[goarch].uname+"-linux-gnu-gcc")
	}
	var stdout strings.Builder
	if err := run(t.Context(), []string{"-o", t.TempDir(), "-version", "v1.2.3-rc.4", "-goarch", goarch}, &stdout); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(stdout.String())
}

func TestWheel(t *testing.T) {
	for goarch, target := range targets {
		t.Run(goarch, func(t *testing.T) {
			t.Setenv("SOURCE_DATE_EPOCH", "1796126400")
			name := makeWheel(t, goarch)
			if want := "ncclfix-" + testVersion + "-py3-none-manylinux2014_" + target.uname + ".manylinux_2_17_" + target.uname + ".musllinux_1_1_" + target.uname + ".whl"; filepath.Base(name) != want {
				t.Errorf("the wheel is %s; want %s", filepath.Base(name), want)
			}
			names, files := unpack(t, name)
			const info = "ncclfix-" + testVersion + ".dist-info/"
			checkRecord(t, names, files, info+"RECORD")
			program := filepath.Join(t.TempDir(), "ncclfix")
			if err := os.WriteFile(program, files["ncclfix-"+testVersion+".data/scripts/ncclfix"], 0o755); err != nil {
				t.Fatal(err)
			}
			if err := checkELF(program, target); err != nil {
				t.Error(err)
			}
			for other := range targets {
				if err := checkELF(program, targets[other]); other != goarch && err == nil {
					t.Errorf("a program for %s passes for one for %s", goarch, other)
				}
			}
			checkMetadata(t, files, info)

			emulator := []string{}
			if goarch != runtime.GOARCH {
				emulator = append(emulator, need(t, "qemu-"+target.uname))
			}
			checkProgram(t, append(emulator, program)...)
		})
	}
}

// unpack returns the names of the files in a wheel, in order, and their contents.
func unpack(t *testing.T, wheel string) (names []string, files map[string][]byte) {
	t.Helper()
	z, err := zip.OpenReader(wheel)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files = map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, f.Name)
		files[f.Name] = data
		want := "-rw-r--r--"
		if strings.HasSuffix(f.Name, "/scripts/ncclfix") {
			want = "-rwxr-xr-x"
		}
		if f.Mode().String() != want || f.Modified.Unix() != 1796126400 {
			t.Errorf("%s: %v %v", f.Name, f.Mode(), f.Modified)
		}
	}
	if len(names) != len(files) {
		t.Errorf("a file is twice in %q", names)
	}
	return names, files
}

// checkRecord holds RECORD, the last file, against the others.
func checkRecord(t *testing.T, names []string, files map[string][]byte, record string) {
	t.Helper()
	rows, err := csv.NewReader(bytes.NewReader(files[record])).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var recorded []string
	for _, row := range rows {
		recorded = append(recorded, row[0])
		data := files[row[0]]
		sum := sha256.Sum256(data)
		want := []string{row[0], "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]), strconv.Itoa(len(data))}
		if row[0] == record {
			want = []string{record, "", ""}
		}
		if d := cmp.Diff(want, row); d != "" {
			t.Errorf("RECORD (-want +got):\n%s", d)
		}
	}
	if d := cmp.Diff(names, recorded); d != "" {
		t.Errorf("files (-wheel +RECORD):\n%s", d)
	}
}

func checkMetadata(t *testing.T, files map[string][]byte, info string) {
	t.Helper()
	head, readme, _ := strings.Cut(string(files[info+"METADATA"]), "\n\n")
	if want, err := os.ReadFile("../../README.md"); err != nil || readme != string(want) {
		t.Errorf("the long description is not the README: %v", err)
	}
	var listed []string
	for line := range strings.SplitSeq(head, "\n") {
		if name, ok := strings.CutPrefix(line, "License-File: "); ok {
			listed = append(listed, info+"licenses/"+name)
		}
	}
	var there []string
	for name := range files {
		if strings.HasPrefix(name, info+"licenses/") {
			there = append(there, name)
		}
	}
	slices.Sort(there)
	if d := cmp.Diff(there, listed); d != "" {
		t.Errorf("licenses (-wheel +METADATA):\n%s", d)
	}
	for _, name := range []string{"LICENSE", "go/LICENSE", "github.com/smacker/go-tree-sitter/LICENSE"} {
		if len(files[info+"licenses/"+name]) == 0 {
			t.Errorf("%s is not among the licenses", name)
		}
	}
}

// checkProgram runs a program that has to be ncclfix of the version under test, on
// a script that leaks.
func checkProgram(t *testing.T, command ...string) {
	t.Helper()
	dir := t.TempDir()
	script := "import torch.distributed as dist\n\ndist.init_process_group('nccl')\n"
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	want := testVersion
	if s, err := examine(t.Context(), "."); err == nil {
		want += " (" + s.String() + ")"
	}
	command = append(command, "version")
	version := exec.Command(command[0], command[1:]...)
	version.Dir = dir // Python would find the package's sources in this one
	if got, err := version.CombinedOutput(); err != nil || string(got) != want+"\n" {
		t.Errorf("%q: %v\n%s", command, err, got)
	}
	command[len(command)-1] = "check"
	check := exec.Command(command[0], command[1:]...)
	check.Dir = dir
	got, _ := check.Output()
	if check.ProcessState.ExitCode() != 1 || !strings.HasPrefix(string(got), "train.py:3:1: ") {
		t.Errorf("%q: %v\n%s", command, check.ProcessState, got)
	}
}

func TestReproducible(t *testing.T) {
	var sums []string
	for range 2 {
		data, err := os.ReadFile(makeWheel(t, runtime.GOARCH))
		if err != nil {
			t.Fatal(err)
		}
		sums = append(sums, fmt.Sprintf("%x", sha256.Sum256(data)))
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds, two wheels: %s, %s", sums[0], sums[1])
	}
}

func TestCheckELF(t *testing.T) {
	for program, want := range map[string]string{
		need(t, "sh"): "it is not statically linked: ",
		"main.go":     "bad magic number",
	} {
		if err := checkELF(program, targets[runtime.GOARCH]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", program, err, want)
		}
	}
}

// Pip installs the wheel into an environment that has nothing else and cannot ask
// for anything.
func TestInstall(t *testing.T) {
	python := need(t, "python3")
	dir := t.TempDir()
	must := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	venv := filepath.Join(dir, "venv")
	if out, err := exec.Command(python, "-m", "venv", venv).CombinedOutput(); err != nil {
		if os.Getenv("CI") == "" {
			t.Skipf("python3 -m venv: %v", err)
		}
		t.Fatalf("python3 -m venv: %v\n%s", err, out)
	}
	wheel := makeWheel(t, runtime.GOARCH)
	inVenv := filepath.Join(venv, "bin", "python")
	must(inVenv, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", wheel)
	t.Run("script", func(t *testing.T) { checkProgram(t, filepath.Join(venv, "bin", "ncclfix")) })
	t.Run("module", func(t *testing.T) { checkProgram(t, inVenv, "-m", "ncclfix") })
	must(inVenv, "-m", "pip", "check")

	target := filepath.Join(dir, "target")
	must(inVenv, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", "--target", target, wheel)
	must(inVenv, "-m", "pip", "uninstall", "-q", "-y", "ncclfix")
	t.Run("target", func(t *testing.T) {
		t.Setenv("PYTHONPATH", target)
		checkProgram(t, python, "-m", "ncclfix")
	})

	if err := os.RemoveAll(filepath.Join(target, "bin")); err != nil {
		t.Fatal(err)
	}
	gone := exec.Command(inVenv, "-m", "ncclfix", "check")
	gone.Dir = target
	gone.Env = append(os.Environ(), "PYTHONPATH="+target)
	if out, _ := gone.CombinedOutput(); gone.ProcessState.ExitCode() != 2 || !strings.HasPrefix(string(out), "ncclfix: the program is not where pip puts it") {
		t.Errorf("without the program: %v\n%s", gone.ProcessState, out)
	}
}
