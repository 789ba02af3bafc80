package rebuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ncclfix/patchers/gitpatch"
)

// A Version is that of NVSHMEM: major, minor, patch. The zero Version is unknown.
type Version [3]int

// String returns "3.2.5", or "of unknown version".
func (v Version) String() string {
	if v == (Version{}) {
		return "of unknown version"
	}
	return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
}

// MarshalText is for JSON, where an unknown version is "".
func (v Version) MarshalText() ([]byte, error) {
	if v == (Version{}) {
		return nil, nil
	}
	return []byte(v.String()), nil
}

// A Source is a source tree of NVSHMEM.
type Source struct {
	Dir     string  `json:"dir"`
	Archive string  `json:"archive,omitempty"` // that it was unpacked from; "" if it was a folder
	Found   string  `json:"found"`             // how it was found
	Version Version `json:"version"`
}

var (
	versionLine    = regexp.MustCompile(`(?m)^NVSHMEM_(MAJOR|MINOR|PATCH)\s*:?=\s*(\d+)\s*$`)
	projectVersion = regexp.MustCompile(`(?is)\bproject\s*\([^)]*\bVERSION\s+(\d+)\.(\d+)\.(\d+)`)
)

// versionOf reads the version of the source tree: from version.txt, or from the
// project command of CMakeLists.txt.
func versionOf(tree fs.FS) Version {
	var v Version
	text, _ := fs.ReadFile(tree, "version.txt")
	for _, m := range versionLine.FindAllStringSubmatch(string(text), -1) {
		n, _ := strconv.Atoi(m[2])
		v[slices.Index([]string{"MAJOR", "MINOR", "PATCH"}, m[1])] = n
	}
	if v != (Version{}) {
		return v
	}
	text, _ = fs.ReadFile(tree, "CMakeLists.txt")
	if m := projectVersion.FindStringSubmatch(string(text)); m != nil {
		for i := range v {
			v[i], _ = strconv.Atoi(m[i+1])
		}
	}
	return v
}

// fits returns the version of NVSHMEM that a patch was made for, or the zero
// Version. It goes by the id that git gave the file the patch was made from,
// which stands in the patch. The ids are those of the public source archives.
func fits(s *gitpatch.Series) Version {
	for _, c := range s.Commits {
		for _, d := range c.Files {
			if d.Old != "src/modules/transport/ibgda/ibgda.cpp" || len(d.OldBlob) < 7 {
				continue
			}
			for blob, v := range map[string]Version{
				"f469904c9b77a4c6015333a959a976e4f0265234": {2, 10, 1},
				"1eed73fb8701829eb27a2d2950a3f35e7839a1d0": {2, 11, 0},
				"8cd249372b830534b879f410b7f540c5e3bb0692": {3, 0, 6},
				"31bc56add34e3d9d26e5866a5320bf50d0e9c6de": {3, 1, 7},
				"ef325cd2dda7c916638a5928e56aebb7d4db4763": {3, 2, 5},
				"d037ccc217234c11f721724a97eef2c33657a3d9": {3, 3, 9},
			} {
				if strings.HasPrefix(blob, d.OldBlob) {
					return v
				}
			}
		}
	}
	return Version{}
}

// A finder looks for NVSHMEM's source.
type finder struct {
	checkout string
	given    string   // --nvshmem-src
	env      string   // $NVSHMEM_SRC
	paths    []string // that a source tree must have
	unpackTo string   // folder for unpacked archives
	search   string   // PATH, for xz
}

// find returns the source, or nil if there is none to be found. Two that would
// do are an error.
func (f finder) find(ctx context.Context) (*Source, error) {
	switch {
	case f.given != "":
		return f.open(ctx, f.given, "--nvshmem-src")
	case f.env != "":
		return f.open(ctx, f.env, "$NVSHMEM_SRC")
	}
	var found []string
	for _, pattern := range []string{"third-party/*", "third-party/*/*", "*"} {
		dirs, err := filepath.Glob(filepath.Join(escapeGlob(f.checkout), pattern))
		if err != nil {
			return nil, err
		}
		for _, dir := range dirs {
			if f.has(dir) {
				found = append(found, dir)
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return source(found[0], "found in the checkout"), nil
	}
	return nil, fmt.Errorf("choosing NVSHMEM's source: %s and %s both have the files that the patch changes; say which with --nvshmem-src", found[0], found[1])
}

func source(dir, how string) *Source {
	return &Source{Dir: dir, Found: how, Version: versionOf(os.DirFS(dir))}
}

// open returns the source tree at path, which is one, or holds one, or is an
// archive of one.
func (f finder) open(ctx context.Context, path, how string) (*Source, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading NVSHMEM's source, given by %s: %w", how, err)
	}
	dir, archive := path, ""
	if !info.IsDir() {
		archive = path
		if dir, err = f.unpack(ctx, path); err != nil {
			return nil, fmt.Errorf("unpacking %s, given by %s: %w", path, how, err)
		}
	}
	root, err := f.top(dir)
	if err != nil {
		return nil, fmt.Errorf("reading NVSHMEM's source in %s, given by %s: %w", path, how, err)
	}
	s := source(root, how)
	s.Archive = archive
	return s, nil
}

// top returns the top folder of the source tree: dir, or the only folder in it
// that is one.
func (f finder) top(dir string) (string, error) {
	if f.has(dir) {
		return dir, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	top := ""
	for _, e := range entries {
		if sub := filepath.Join(dir, e.Name()); f.has(sub) {
			if top != "" {
				return "", fmt.Errorf("%s and %s are both source trees", top, sub)
			}
			top = sub
		}
	}
	if top == "" {
		return "", fmt.Errorf("there is no %s", strings.Join(f.paths, ", no "))
	}
	return top, nil
}

// has reports whether dir has all files of a source tree.
func (f finder) has(dir string) bool {
	for _, p := range f.paths {
		info, err := os.Stat(filepath.Join(dir, filepath.FromSlash(p)))
		if err != nil || !info.Mode().IsRegular() {
			return false
		}
	}
	return true
}

// unpack unpacks an archive into a folder of the state, which is named by the
// archive's bytes, and returns it. An archive that was unpacked before is not
// unpacked again: its tree may be patched by now.
func (f finder) unpack(ctx context.Context, archive string) (string, error) {
	in, err := os.Open(archive)
	if err != nil {
		return "", err
	}
	defer in.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, in); err != nil {
		return "", err
	}
	dir := filepath.Join(f.unpackTo, hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	if err := os.MkdirAll(f.unpackTo, 0o700); err != nil {
		return "", err
	}
	part, err := os.MkdirTemp(f.unpackTo, "part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part)
	if err := unpack(ctx, archive, part, f.search); err != nil {
		return "", err
	}
	return dir, os.Rename(part, dir)
}

// escapeGlob makes filepath.Glob take path literally.
func escapeGlob(path string) string {
	return regexp.MustCompile(`[\\*?[]`).ReplaceAllString(path, `\$0`)
}
