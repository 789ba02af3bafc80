package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	//go:embed ncclfix/__init__.py
	initPy []byte
	//go:embed ncclfix/__main__.py
	mainPy []byte
)

// A file is one of the files in a wheel.
type file struct {
	path string // separated by /
	mode fs.FileMode
	data []byte
}

// contents returns the files of the wheel in the order that they have in it: what
// is installed first and RECORD last, as the specification advises.
func contents(ctx context.Context, root, program, version string, t target) ([]file, error) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	licenses, err := licenses(ctx, root, program)
	if err != nil {
		return nil, fmt.Errorf("collecting the licenses: %w", err)
	}
	names := slices.Sorted(maps.Keys(licenses))
	info := "ncclfix-" + version + ".dist-info/"
	files := []file{
		{"ncclfix/__init__.py", 0o644, initPy},
		{"ncclfix/__main__.py", 0o644, mainPy},
		{"ncclfix-" + version + ".data/scripts/ncclfix", 0o755, binary},
		{info + "METADATA", 0o644, metadata(version, names, readme)},
		{info + "WHEEL", 0o644, wheelFile(t)},
	}
	for _, name := range names {
		files = append(files, file{info + "licenses/" + name, 0o644, licenses[name]})
	}
	return append(files, file{info + "RECORD", 0o644, record(files, info+"RECORD")}), nil
}

// metadata returns METADATA, version 2.4 of the core metadata, with the README for
// the long description.
func metadata(version string, licenses []string, readme []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `Metadata-Version: 2.4
Name: ncclfix
Version: %s
Summary: Make a PyTorch-distributed checkout exit without NCCL warnings
Author: The ncclfix authors
License-Expression: MIT
`, version)
	for _, name := range licenses {
		fmt.Fprintf(&b, "License-File: %s\n", name)
	}
	fmt.Fprintf(&b, `Keywords: pytorch,distributed,nccl,lint
Classifier: Environment :: Console
Classifier: Intended Audience :: Developers
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Software Development :: Quality Assurance
Requires-Python: >=3.8
Description-Content-Type: text/markdown

%s`, readme)
	return b.Bytes()
}

// wheelFile returns WHEEL.
func wheelFile(t target) []byte {
	var b bytes.Buffer
	b.WriteString("Wheel-Version: 1.0\nGenerator: mkwheel\nRoot-Is-Purelib: false\n")
	for _, platform := range t.platforms() {
		fmt.Fprintf(&b, "Tag: py3-none-%s\n", platform)
	}
	return b.Bytes()
}

// record returns RECORD: each file's path, SHA-256 and size in bytes; its own path
// alone.
func record(files []file, own string) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		w.Write([]string{f.path, "sha256=" + base64.RawURLEncoding.EncodeToString(sum[:]), strconv.Itoa(len(f.data))})
	}
	w.Write([]string{own, "", ""})
	w.Flush() // a buffer takes everything
	return b.Bytes()
}

// write writes the wheel whole or not at all. The folder is made if it is not there.
func write(name string, files []file, modified time.Time) error {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, "."+strings.TrimSuffix(filepath.Base(name), ".whl")+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // not there any more if all went well
	defer tmp.Close()
	if err := archive(tmp, files, modified); err != nil {
		return err
	}
	if err := tmp.Chmod(0o644); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), name)
}

func archive(w io.Writer, files []file, modified time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: modified}
		h.SetMode(f.mode)
		part, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := part.Write(f.data); err != nil {
			return err
		}
	}
	return z.Close()
}
