package rebuild

import (
	"archive/zip"
	_ "embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// probe is the program that asks an interpreter what it has of a wheel.
//
//go:embed probe.py
var probe string

// A wheel is what a wheel file says about itself.
type wheel struct {
	name    string            // of the distribution, as the file's name has it
	modules []string          // that it brings: packages first, then single modules
	files   map[string]string // path to hash, of what is installed beside each other
}

// readWheel reads the wheel file.
func readWheel(file string) (*wheel, error) {
	z, err := zip.OpenReader(file)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	name, _, _ := strings.Cut(filepath.Base(file), "-")
	i := slices.IndexFunc(z.File, func(f *zip.File) bool {
		return strings.Count(f.Name, "/") == 1 && strings.HasSuffix(f.Name, ".dist-info/RECORD")
	})
	if i < 0 {
		return nil, errors.New("it has no RECORD")
	}
	f, err := z.File[i].Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	record, err := io.ReadAll(io.LimitReader(f, 64<<20))
	if err != nil {
		return nil, err
	}
	w := &wheel{name: name}
	if w.files, err = readRecord(string(record)); err != nil {
		return nil, err
	}
	w.modules = modules(w.files)
	return w, nil
}

// readRecord reads a RECORD: the hash of each file but for those that are moved
// or made when a wheel is installed.
func readRecord(text string) (map[string]string, error) {
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, row := range rows {
		top, _, _ := strings.Cut(row[0], "/")
		if len(row) < 2 || row[1] == "" || strings.HasSuffix(top, ".dist-info") || strings.HasSuffix(top, ".data") {
			continue
		}
		files[row[0]] = row[1]
	}
	return files, nil
}

var moduleFile = regexp.MustCompile(`^([A-Za-z_]\w*)(\.py|(\.[\w-]+)*\.so)$`)

// modules returns the names that can be imported: packages in front of modules,
// because a package may load what a module beside it needs.
func modules(files map[string]string) []string {
	var packages, single []string
	for file := range files {
		if dir, base := path.Split(file); base == "__init__.py" && strings.Count(dir, "/") == 1 {
			packages = append(packages, strings.TrimSuffix(dir, "/"))
		} else if m := moduleFile.FindStringSubmatch(file); m != nil {
			single = append(single, m[1])
		}
	}
	slices.Sort(packages)
	slices.Sort(single)
	return append(packages, single...)
}

// wheels returns the wheels in the folder dist. There may be no such folder.
func wheels(dist string) (map[string]fs.FileInfo, error) {
	entries, err := os.ReadDir(dist)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	found := map[string]fs.FileInfo{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".whl") {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		found[filepath.Join(dist, e.Name())] = info
	}
	return found, nil
}

// newWheels returns the wheels in dist that are not what they were before.
func newWheels(dist string, before map[string]fs.FileInfo) ([]string, error) {
	now, err := wheels(dist)
	if err != nil {
		return nil, err
	}
	var fresh []string
	for file, info := range now {
		old := before[file]
		if old == nil || !os.SameFile(old, info) || old.Size() != info.Size() || !old.ModTime().Equal(info.ModTime()) {
			fresh = append(fresh, file)
		}
	}
	slices.Sort(fresh)
	return fresh, nil
}

// An answer is what probe.py writes.
type answer struct {
	Interpreter string            `json:"interpreter"`
	Folder      string            `json:"folder"` // in which the wheel is installed
	Record      string            `json:"record"`
	Files       map[string]string `json:"files"` // of the imported modules
}

// readAnswer reads what probe.py wrote to file.
func readAnswer(file string) (*answer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	a := new(answer)
	return a, json.Unmarshal(data, a)
}

// installed says why the interpreter that gave the answer does not have what is
// in the wheel.
func (w *wheel) installed(a *answer) error {
	have, err := readRecord(a.Record)
	if err != nil {
		return fmt.Errorf("reading the record of %s: %w", w.name, err)
	}
	for file, hash := range w.files {
		if have[file] != hash {
			return fmt.Errorf("%s is installed for %s with another %s than the wheel's: pip kept an earlier one", w.name, a.Interpreter, file)
		}
	}
	for _, m := range w.modules {
		rel, err := filepath.Rel(a.Folder, a.Files[m])
		if err != nil || w.files[filepath.ToSlash(rel)] == "" {
			return fmt.Errorf("%s imports %s from %s, which is not the one that was installed", a.Interpreter, m, a.Files[m])
		}
	}
	return nil
}
