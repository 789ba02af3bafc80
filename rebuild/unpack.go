package rebuild

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
)

// maxUnpacked and maxEntries bound what an archive may grow to. NVSHMEM's
// sources are 5 MB in 350 files.
const (
	maxUnpacked = 1 << 30
	maxEntries  = 100_000
)

// unpack unpacks the archive file, a tar compressed with gzip or xz, into the
// empty folder dir. It refuses archives in which anything lies or leads outside
// of dir, and entries other than files, folders and links. Of the modes only the
// executable bit is kept. On error, dir may hold a part.
//
// xz is read by the xz program, found on searchPath.
func unpack(ctx context.Context, file, dir, searchPath string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	start := make([]byte, 6)
	if _, err := io.ReadFull(f, start); err != nil {
		return errors.New("it is no archive")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		r, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return err
		}
		return untar(r, root)
	case bytes.Equal(start, []byte("\xfd7zXZ\x00")):
		return unxz(ctx, f, root, searchPath)
	}
	return errors.New("it is neither a .tar.gz nor a .txz")
}

// unxz unpacks through the xz program.
func unxz(ctx context.Context, f *os.File, root *os.Root, searchPath string) error {
	xz := lookPath("xz", searchPath)
	if xz == "" {
		return errors.New("there is no xz program to read it; unpack it by hand and give its folder")
	}
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, xz, "--decompress", "--stdout")
	cmd.Stdin, cmd.Stderr = f, &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = untar(out, root)
	if err != nil {
		out.Close() // xz may not be at its end
	}
	if e := cmd.Wait(); e != nil && (err == nil || complaint.Len() > 0) {
		err = fmt.Errorf("%s: %w", firstLine(complaint.String()), e)
	}
	return err
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// untar unpacks a tar into root. A path never leads through a symlink, and in
// the end every symlink that leads out of root is found, however it does.
func untar(r io.Reader, root *os.Root) error {
	var links []string
	size := int64(0)
	t := tar.NewReader(r)
	for entries := 0; ; entries++ {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if size += h.Size; entries == maxEntries || size > maxUnpacked {
			return fmt.Errorf("refusing to unpack more than %d files or %d bytes", maxEntries, maxUnpacked)
		}
		name := path.Clean(h.Name)
		if h.Typeflag == tar.TypeXGlobalHeader || name == "." {
			continue
		}
		if !fs.ValidPath(name) {
			return fmt.Errorf("refusing to unpack %q: it leads out of the folder", h.Name)
		}
		if err := makeFolders(root, path.Dir(name)); err != nil {
			return fmt.Errorf("unpacking %q: %w", h.Name, err)
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = makeFolders(root, name)
		case tar.TypeReg:
			err = writeFile(root, name, t, h.FileInfo().Mode())
		case tar.TypeSymlink:
			links = append(links, name)
			err = root.Symlink(h.Linkname, name)
		case tar.TypeLink:
			target := path.Clean(h.Linkname)
			if info, e := root.Lstat(target); e != nil || !info.Mode().IsRegular() {
				return fmt.Errorf("refusing to unpack %q: it is a link to %q, which is no file of the archive", h.Name, h.Linkname)
			}
			err = root.Link(target, name)
		default:
			return fmt.Errorf("refusing to unpack %q: it is neither a file nor a folder nor a link", h.Name)
		}
		if err != nil {
			return fmt.Errorf("unpacking %q: %w", h.Name, err)
		}
	}
	for _, name := range links {
		if _, err := root.Stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("refusing to unpack %q: it is a link that leads out of the folder", name)
		}
	}
	return nil
}

// makeFolders makes the folder name and those above it, none of which may be a
// symlink.
func makeFolders(root *os.Root, name string) error {
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		err := root.Mkdir(name[:i], 0o755)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		info, err := root.Lstat(name[:i])
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%q is not a folder", name[:i])
		}
	}
	return nil
}

func writeFile(root *os.Root, name string, r io.Reader, mode fs.FileMode) error {
	perm := fs.FileMode(0o644)
	if mode&0o100 != 0 {
		perm = 0o755
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
