package rebuild

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A member is one entry of an archive.
type member struct {
	kind       byte
	name, text string // text is the target of links
}

func archive(t *testing.T, members ...member) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, m := range members {
		h := &tar.Header{Typeflag: m.kind, Name: m.name, Mode: 0o4755}
		if m.kind == tar.TypeReg {
			h.Size = int64(len(m.text))
		} else {
			h.Linkname = m.text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if m.kind == tar.TypeReg {
			if _, err := w.Write([]byte(m.text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "a.tar.gz")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestUnpack(t *testing.T) {
	file := archive(t,
		member{tar.TypeDir, "./", ""},
		member{tar.TypeDir, "src/", ""},
		member{tar.TypeReg, "./src/a.c", "a"},
		member{tar.TypeReg, "deep/er/b.c", "b"}, // whose folders have no entries
		member{tar.TypeSymlink, "deep/a.c", "../src/a.c"},
		member{tar.TypeSymlink, "dangling", "nowhere"},
		member{tar.TypeLink, "hard.c", "src/a.c"},
	)
	dir := t.TempDir()
	if err := unpack(context.Background(), file, dir, ""); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, name := range []string{"src/a.c", "deep/er/b.c", "deep/a.c", "hard.c"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		got[name] = string(data)
	}
	if d := cmp.Diff(map[string]string{"src/a.c": "a", "deep/er/b.c": "b", "deep/a.c": "a", "hard.c": "a"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	info, err := os.Stat(filepath.Join(dir, "src/a.c"))
	if err != nil || info.Mode() != 0o755 {
		t.Errorf("mode %v, %v: more than the executable bit is kept", info.Mode(), err)
	}
}

func TestUnpackRefuses(t *testing.T) {
	file := func(name string) member { return member{tar.TypeReg, name, "x"} }
	link := func(name, to string) member { return member{tar.TypeSymlink, name, to} }
	tests := []struct {
		name    string
		members []member
		err     string
	}{
		{"up", []member{file("../x")}, "leads out of the folder"},
		{"up in the middle", []member{file("a/../../x")}, "leads out of the folder"},
		{"absolute", []member{file("/etc/x")}, "leads out of the folder"},
		{"symlink up", []member{link("a/x", "../../y")}, "a link that leads out of the folder"},
		{"absolute symlink", []member{link("x", "/etc/passwd")}, "a link that leads out of the folder"},
		{"symlink up by another", []member{{tar.TypeDir, "p/q", ""}, link("p/q/top", "../.."), link("x", "p/q/top/../y")}, "a link that leads out of the folder"},
		{"symlink to a symlink up", []member{link("x", "y"), link("y", "../z")}, "a link that leads out of the folder"},
		{"through a symlink", []member{{tar.TypeDir, "d", ""}, link("e", "d"), file("e/x")}, `"e" is not a folder`},
		{"through a symlink up", []member{link("e", ".."), file("e/x")}, `"e" is not a folder`},
		{"over a symlink", []member{link("e", "../x"), file("e")}, "file exists"},
		{"hard link up", []member{{tar.TypeLink, "x", "../y"}}, "no file of the archive"},
		{"hard link to a symlink", []member{link("e", "/etc/passwd"), {tar.TypeLink, "x", "e"}}, "no file of the archive"},
		{"device", []member{{tar.TypeChar, "x", ""}}, "neither a file nor a folder nor a link"},
		{"pipe", []member{{tar.TypeFifo, "x", ""}}, "neither a file nor a folder nor a link"},
		{"twice", []member{file("x"), file("x")}, "file exists"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			top := t.TempDir()
			dir := filepath.Join(top, "in")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			err := unpack(context.Background(), archive(t, tt.members...), dir, "")
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			entries, err := os.ReadDir(top)
			if err != nil || len(entries) != 1 {
				t.Errorf("something was written beside the folder: %v, %v", entries, err)
			}
		})
	}
}

func TestUnpackBroken(t *testing.T) {
	whole, err := os.ReadFile(archive(t, member{tar.TypeReg, "a", strings.Repeat("text ", 1000)}))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"empty":         nil,
		"text":          []byte("PK, or so\n"),
		"cut off":       whole[:len(whole)/2],
		"xz of nothing": []byte("\xfd7zXZ\x00 and so on"),
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "a.tgz")
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := unpack(context.Background(), file, t.TempDir(), "/usr/bin:/bin"); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	file := filepath.Join(t.TempDir(), "a.txz")
	if err := os.WriteFile(file, []byte("\xfd7zXZ\x00 and so on"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unpack(context.Background(), file, t.TempDir(), "/none"); err == nil || !strings.Contains(err.Error(), "there is no xz program") {
		t.Errorf("without xz: %v", err)
	}
	var exists fs.FileInfo
	if exists, err = os.Stat(file); err != nil || exists.Size() == 0 {
		t.Error("the archive is gone")
	}
}
