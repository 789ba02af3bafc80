package teardown

import (
	"hash/maphash"
	"io/fs"
	"path"
	"regexp"
	"runtime"
	"slices"

	"ncclfix/patchers"
	"ncclfix/patchers/pysyntax"
)

// A scanned is a tree of which every file has been searched.
type scanned struct {
	pass    *patchers.Pass
	reader  *reader
	parsers chan *pysyntax.Parser // those that are free

	ix        *index
	sources   []*source
	importers [][]int // by source, the sources that import it
	packages  []int   // by source, the __init__.py of the package that it is in, or -1
	entries   []entry
}

// An entry is a function that a console script runs.
type entry struct {
	file int
	name string
}

// scanTree searches the files of the tree. What it returns must be closed.
func scanTree(pass *patchers.Pass) (*scanned, error) {
	r := &reader{fsys: pass.Tree.FS}
	sources, ix, err := scan(pass.Context, pass.Tree, r)
	if err != nil {
		return nil, err
	}
	t := &scanned{
		pass: pass, reader: r, parsers: make(chan *pysyntax.Parser, runtime.GOMAXPROCS(0)),
		ix: ix, sources: sources, importers: make([][]int, len(sources)), packages: make([]int, len(sources)),
	}
	for range cap(t.parsers) {
		t.parsers <- pysyntax.NewParser()
	}
	for i, s := range sources {
		t.packages[i] = t.packageOf(s.path)
		for _, j := range s.imports {
			t.importers[j] = append(t.importers[j], i)
		}
	}
	t.findEntries()
	return t, nil
}

func (t *scanned) close() {
	for range cap(t.parsers) {
		(<-t.parsers).Close()
	}
}

// packageOf returns the number of the __init__.py of the package that a file is in, or
// -1. That of a package's own is that of the one around it.
func (t *scanned) packageOf(file string) int {
	dir := parent(file)
	if dir == "." {
		return -1
	}
	if path.Base(file) == "__init__.py" {
		dir = parent(dir)
	}
	if n, ok := t.ix.files[path.Join(dir, "__init__.py")]; ok {
		return n
	}
	return -1
}

// entryPoint is "name = package.module:function", as pyproject.toml, setup.cfg
// and setup.py declare console scripts.
var entryPoint = regexp.MustCompile(`=\s*["']?([A-Za-z_][\w.]*):([A-Za-z_]\w*)`)

// findEntries notes the functions that console scripts of the tree run.
func (t *scanned) findEntries() {
	for _, p := range t.pass.Tree.Files {
		switch path.Base(p) {
		case "pyproject.toml", "setup.cfg", "setup.py":
		default:
			continue
		}
		src, err := fs.ReadFile(t.pass.Tree.FS, p)
		if err != nil {
			continue // pyproject.toml is not ours to judge
		}
		for _, match := range entryPoint.FindAllSubmatch(src, -1) {
			if n, ok := t.ix.resolve(p, string(match[1])); ok {
				t.entries = append(t.entries, entry{n, string(match[2])})
			}
		}
	}
}

// analysis returns the analysis of a part of the tree.
func (t *scanned) analysis(part []int) *analysis {
	return &analysis{
		scanned: t, part: part,
		prog:  &program{ix: t.ix, modules: map[int]*module{}, sought: map[string]bool{}, fsys: t.pass.Tree.FS, seed: maphash.MakeSeed()},
		tried: map[int]bool{}, offers: map[int]map[string]bool{}, changed: map[int]bool{}, used: make([]bool, len(t.sources)),
	}
}

// maxPart is how many files are analyzed together, though they have nothing to do with
// each other, so that there is work for all processors. A project that has more is a part
// of its own.
const maxPart = 2000

// parts divides the files that can matter into parts that have nothing to do with each
// other: no file imports one of another part, is in one package with it, or is a test
// for which a conftest.py of another part counts.
func (t *scanned) parts() [][]int {
	group := make([]int, len(t.sources)) // a forest: by file another one of its group, or itself
	for i := range group {
		group[i] = i
	}
	find := func(i int) int {
		for group[i] != i {
			group[i] = group[group[i]]
			i = group[i]
		}
		return i
	}
	join := func(i, j int) {
		i, j = find(i), find(j)
		group[max(i, j)] = min(i, j)
	}
	conftests := map[string]int{} // by folder
	for i, s := range t.sources {
		if path.Base(s.path) == "conftest.py" {
			conftests[parent(s.path)] = i
		}
	}
	matters := map[int]bool{} // groups with a file that is parsed whatever the others are
	for i, s := range t.sources {
		for _, j := range s.imports {
			join(i, j)
		}
		if t.packages[i] >= 0 {
			join(i, t.packages[i])
		}
		for dir := s.path; dir != "." && len(conftests) > 0; {
			dir = parent(dir)
			if j, ok := conftests[dir]; ok {
				join(i, j)
			}
		}
	}
	for i, s := range t.sources {
		if s.isSeed() || s.err != nil {
			matters[find(i)] = true
		}
	}
	members := map[int][]int{}
	var order []int
	for i := range t.sources {
		g := find(i)
		if !matters[g] {
			continue
		}
		if len(members[g]) == 0 {
			order = append(order, g)
		}
		members[g] = append(members[g], i)
	}
	var parts [][]int
	for _, g := range order {
		if n := len(parts); n > 0 && len(parts[n-1])+len(members[g]) <= maxPart {
			parts[n-1] = append(parts[n-1], members[g]...)
		} else {
			parts = append(parts, members[g])
		}
	}
	for _, p := range parts {
		slices.Sort(p)
	}
	return parts
}
