// Mkwheel builds the Python wheel of ncclfix: the program, statically linked, and a
// small package that runs it for python -m ncclfix.
//
//	go run ./cmd/mkwheel [-o DIR] [-version V] [-goarch amd64|arm64]
//
// It needs the go command, git and a C compiler that can link statically: gcc, or
// that of the other architecture (Debian: gcc-aarch64-linux-gnu,
// gcc-x86-64-linux-gnu), or what CC names. It prints the path of the wheel.
//
// The same commit, Go, C compiler and version give the same bytes. The files in
// the wheel bear the time that SOURCE_DATE_EPOCH gives in seconds, or 1980-01-01.
//
// The exit status is 2 if there is no wheel; a line on standard error says why. (Go
// run makes it 1, and adds a line.)
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "mkwheel: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	var dir, version, goarch string
	flags := flag.NewFlagSet("mkwheel", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&dir, "o", "dist", "the `folder` for the wheel; it is made if it is not there")
	flags.StringVar(&version, "version", "", "the `version` of the wheel (default: what git says)")
	flags.StringVar(&goarch, "goarch", runtime.GOARCH, "the `architecture` that it is for: amd64 or arm64")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stdout, "usage: mkwheel [-o DIR] [-version V] [-goarch amd64|arm64]")
			flags.SetOutput(stdout)
			flags.PrintDefaults()
		}
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	target, ok := targets[goarch]
	if !ok {
		return fmt.Errorf("unknown -goarch %q: not one of amd64, arm64", goarch)
	}
	modified, err := fileTime(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	root, err := output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "ncclfix")
	if err != nil {
		return fmt.Errorf("finding the sources of ncclfix: %w", err)
	}
	git, noGit := examine(ctx, root)
	switch {
	case version != "":
		version, err = normalize(version)
	case noGit != nil:
		err = fmt.Errorf("asking git for the version: %w; -version would give it", noGit)
	default:
		version, err = git.version()
	}
	if err != nil {
		return err
	}
	release := version
	if noGit == nil {
		release += " (" + git.String() + ")"
	}

	tmp, err := os.MkdirTemp("", "mkwheel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	program := filepath.Join(tmp, "ncclfix")
	if err := build(ctx, root, program, release, target); err != nil {
		return err
	}
	if err := checkELF(program, target); err != nil {
		return fmt.Errorf("checking the program: %w", err)
	}
	files, err := contents(ctx, root, program, version, target)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, fmt.Sprintf("ncclfix-%s-%s.whl", version, target.tag()))
	if err := write(name, files, modified); err != nil {
		return fmt.Errorf("writing the wheel: %w", err)
	}
	_, err = fmt.Fprintln(stdout, name)
	return err
}

// fileTime returns the time that the files in the wheel bear. Zip knows none before
// 1980.
func fileTime(epoch string) (time.Time, error) {
	first := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	if epoch == "" {
		return first, nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	t := time.Unix(seconds, 0).UTC()
	if err != nil || t.Year() > 2100 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q, which is no time in seconds", epoch)
	}
	if t.Before(first) {
		return first, nil
	}
	return t, nil
}

// output runs a command in dir and returns what it prints, without the last
// newline. The error is what it says on standard error.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	return outputOf(cmd)
}

func outputOf(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		says := cmp.Or(strings.TrimSpace(stderr.String()), err.Error())
		return "", errors.New(says)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
