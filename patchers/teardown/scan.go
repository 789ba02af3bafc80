package teardown

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"ncclfix/patchers"
	"ncclfix/patchers/pysyntax"
)

// A source is what a byte search tells about one Python file, before anything
// is parsed.
type source struct {
	path    string
	size    int   // in bytes
	imports []int // files of the tree that it imports, as far as can be told from the text
	opens   bool  // names a function that opens a process group
	closes  bool  // names the function that destroys one
	spawns  *bool // names a function that starts processes; nil: not asked yet
	err     error // the file could not be read
	invalid bool  // the file could not be parsed

	// Names that were looked for in it, and whether as names that leave a group
	// open. A parsed file was read with all of them in mind.
	asked map[string]bool
}

// An index finds the files of a tree by module name.
type index struct {
	paths  []string
	files  map[string]int      // path → number of the source
	tops   map[string][]string // first components of module names → folders in which they stand
	hasSrc map[string]bool     // folders with a folder src
}

func newIndex(paths []string) *index {
	ix := &index{paths: paths, files: make(map[string]int, len(paths)), tops: map[string][]string{}, hasSrc: map[string]bool{}}
	for i, p := range paths {
		ix.files[p] = i
		in := "."
		for rest := strings.TrimSuffix(p, ".py"); ; {
			dir, tail, more := strings.Cut(rest, "/")
			if dirs := ix.tops[dir]; len(dirs) == 0 || dirs[len(dirs)-1] != in {
				ix.tops[dir] = append(dirs, in)
			}
			if !more {
				break
			}
			if dir == "src" {
				ix.hasSrc[parent(strings.TrimSuffix(p[:len(p)-len(".py")-len(tail)], "/"))] = true
			}
			in = p[:len(p)-len(".py")-len(tail)-1]
			rest = tail
		}
	}
	return ix
}

// parent is path.Dir for the clean paths of a tree.
func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return "."
}

// mayHold reports whether the first component of a module name is one of the
// tree's, or the name is relative.
func (ix *index) mayHold(name []byte) bool {
	top, _, _ := bytes.Cut(name, []byte("."))
	return len(top) == 0 || len(ix.tops[string(top)]) > 0
}

// find returns the file of the module dotted below the folder dir, and whether
// there is one. A package is its __init__.py.
func (ix *index) find(dir, dotted string) (int, bool) {
	var buf [256]byte // most names fit, and cost no allocation
	name := append(buf[:0], dir...)
	if dir == "." {
		name = name[:0]
	} else {
		name = append(name, '/')
	}
	for i := range len(dotted) {
		if c := dotted[i]; c == '.' {
			name = append(name, '/')
		} else {
			name = append(name, c)
		}
	}
	n := len(name)
	if i, ok := ix.files[string(append(name, ".py"...))]; ok {
		return i, true
	}
	i, ok := ix.files[string(append(name[:n], "/__init__.py"...))]
	return i, ok
}

// resolve finds the file that the module name means in an import statement of
// the file from. Relative names are exact. Absolute ones are looked up the way
// sys.path usually stands: beside the file (a script's own folder), then in each
// folder above it and in their src folders (an installed or local package).
func (ix *index) resolve(from, name string) (int, bool) {
	dir := parent(from)
	if rel := strings.TrimLeft(name, "."); rel != name {
		for range len(name) - len(rel) - 1 {
			if dir == "." {
				return 0, false
			}
			dir = path.Dir(dir)
		}
		if rel == "" {
			i, ok := ix.files[path.Join(dir, "__init__.py")]
			return i, ok
		}
		return ix.find(dir, rel)
	}
	top, _, _ := strings.Cut(name, ".")
	tops := ix.tops[top]
	if len(tops) == 0 {
		return 0, false
	}
	find := func(dir string) (int, bool) {
		if len(tops) <= fewTops && !slices.Contains(tops, dir) {
			return 0, false
		}
		i, ok := ix.find(dir, name)
		return i, ok && !ix.isLibrary(i, top)
	}
	for {
		if i, ok := find(dir); ok {
			return i, true
		}
		if ix.hasSrc[dir] {
			if i, ok := find(path.Join(dir, "src")); ok {
				return i, true
			}
		}
		if dir == "." {
			return 0, false
		}
		dir = parent(dir)
	}
}

// fewTops is how many folders are looked through faster than a file is looked up.
const fewTops = 16

// isLibrary reports whether a file that a module name leads to is the library of
// that name itself, checked out here: PyTorch's own tree defines
// init_process_group and does not call it.
func (ix *index) isLibrary(file int, top string) bool {
	return (top == "torch" || top == "deepspeed") && strings.Contains("/"+ix.paths[file], "/"+top+"/")
}

// isSeed reports whether a file is parsed whatever the others are: it opens a
// process group, or it may destroy those of tests that do not import it.
func (s *source) isSeed() bool {
	return s.opens || s.closes && path.Base(s.path) == "conftest.py"
}

// search notes which functions the text names that open or destroy a process
// group. A file that names none matters only through what it imports.
func (s *source) search(src []byte) {
	for at := range places(src, "_process_group", 'g') {
		s.opens = s.opens || bytes.HasSuffix(src[:at], []byte("init"))
		s.closes = s.closes || bytes.HasSuffix(src[:at], []byte("destroy"))
		if s.opens && s.closes {
			return
		}
	}
	s.opens = s.opens || names(src, "init_device_mesh", 'v') || names(src, "init_distributed", 'b') ||
		names(src, "DeviceMesh(", 'M') || names(src, "initialize(", 'z') && names(src, "deepspeed", 'd')
}

// places returns the offsets at which the word stands in src. It looks for one
// byte of the word, so that a byte that is rare in Python makes it fast: there is
// much more text than there are words to find.
func places(src []byte, word string, rare byte) iter.Seq[int] {
	k := strings.IndexByte(word, rare)
	return func(yield func(int) bool) {
		for i := k; i < len(src); i++ {
			n := bytes.IndexByte(src[i:], rare)
			if n < 0 {
				return
			}
			i += n
			if at := i - k; len(src)-at >= len(word) && string(src[at:at+len(word)]) == word && !yield(at) {
				return
			}
		}
	}
}

// names reports whether the word stands in src. See places.
func names(src []byte, word string, rare byte) bool {
	for range places(src, word, rare) {
		return true
	}
	return false
}

// startsProcesses reports whether the text calls a function that has the name of one
// that starts processes.
func startsProcesses(src []byte) bool {
	for at := range places(src, "(", '(') {
		name := src[:at]
		switch {
		case bytes.HasSuffix(name, []byte("spawn")), bytes.HasSuffix(name, []byte("Process")), bytes.HasSuffix(name, []byte("start_processes")),
			bytes.HasSuffix(name, []byte("elastic_launch")), bytes.HasSuffix(name, []byte("launch_agent")):
			return true
		}
	}
	return false
}

// basicWords are the names without which no function does anything to process
// groups, nor leads to one that does.
var basicWords = map[string]bool{
	"init_process_group": true, "destroy_process_group": true, "init_device_mesh": true, "DeviceMesh": true,
	"init_distributed": true, "initialize": true, "atexit": true,
	"spawn": true, "Process": true, "start_processes": true, "elastic_launch": true, "launch_agent": true,
	"get_context": true, "WORLD": true, "exit": true, "quit": true, "_exit": true, "__main__": true,
}

// basicModules are those by whose names a file can call the functions of process
// groups.
var basicModules = map[string]bool{
	"torch": true, "torch.distributed": true, "torch.multiprocessing": true, "deepspeed": true, "deepspeed.comm": true,
}

// interest returns what matters in a file, where words do beside the basic ones.
func interest(words map[string]bool) *pysyntax.Interest {
	return &pysyntax.Interest{
		Word: func(word []byte) bool { return basicWords[string(word)] || words[string(word)] },
		Definition: func(name []byte) string {
			switch name := string(name); {
			case strings.HasPrefix(name, "test"):
				return "test"
			case isSetupName(name, true) || isSetupName(name, false) || isTeardownName(name):
				return name
			}
			return ""
		},
		Module: func(name []byte) bool {
			top, _, _ := bytes.Cut(name, []byte("."))
			return basicModules[string(name)] || bytes.HasPrefix(name, []byte("torch.distributed.")) || frameworks[string(top)]
		},
	}
}

func containsAny(src []byte, words [][]byte) bool {
	return slices.ContainsFunc(words, func(w []byte) bool { return bytes.Contains(src, w) })
}

// scan reads every Python file of the tree once and searches its bytes.
func scan(ctx context.Context, tree patchers.Tree, r *reader) ([]*source, *index, error) {
	var paths []string
	for _, p := range tree.Files {
		if strings.HasSuffix(p, ".py") {
			paths = append(paths, p)
		}
	}
	ix := newIndex(paths)
	sources := make([]*source, len(paths))
	err := parallel(ctx, len(paths), func(i int) error {
		s := &source{path: paths[i]}
		sources[i] = s
		s.err = r.read(s.path, func(src []byte) {
			s.size = len(src)
			s.search(src)
			importedModules(src, func(name []byte) {
				if !ix.mayHold(name) {
					return
				}
				if j, ok := ix.resolve(s.path, string(name)); ok && j != i {
					s.imports = append(s.imports, j)
				}
			})
		})
		return nil
	})
	return sources, ix, err
}

// A reader reads files into memory that it uses again: most files are read, looked
// at and forgotten.
type reader struct {
	fsys fs.FS
	free sync.Pool // of *bytes.Buffer
}

// read calls f with what is in a file. It is good until f returns.
func (r *reader) read(name string, f func(src []byte)) error {
	buf, _ := r.free.Get().(*bytes.Buffer)
	if buf == nil {
		buf = new(bytes.Buffer)
	}
	defer r.free.Put(buf)
	buf.Reset()
	file, err := r.fsys.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := buf.ReadFrom(file); err != nil {
		return err
	}
	f(buf.Bytes())
	return nil
}

// importedModules calls f with the module names that the import statements of src
// may mean: for "from a import b" both a and a.b. A name is good until f returns.
// It searches bytes, and the names may stand in a string or a comment.
func importedModules(src []byte, f func(name []byte)) {
	var name []byte
	for word := range places(src, "import", 'm') {
		at := word + len("import")
		if at >= len(src) || strings.IndexByte(" \t(\\*", src[at]) < 0 {
			continue
		}
		head := bytes.TrimLeft(src[lastBreak(src[:word])+1:word], " \t")
		rest := src[at:]
		if len(head) == 0 {
			for part := range bytes.SplitSeq(line(rest), []byte(",")) {
				if first := firstField(part); len(first) > 0 {
					f(first)
				}
			}
			continue
		}
		module, ok := bytes.CutPrefix(head, []byte("from"))
		if !ok {
			continue
		}
		name = name[:0]
		for part := range bytes.FieldsSeq(module) {
			name = append(name, part...)
		}
		f(name)
		if !bytes.HasSuffix(name, []byte(".")) {
			name = append(name, '.')
		}
		list := line(rest)
		if open := bytes.TrimLeft(list, " \t\\"); bytes.HasPrefix(open, []byte("(")) {
			list = rest
			if end := bytes.IndexByte(rest, ')'); end >= 0 {
				list = rest[:end]
			}
		}
		for len(list) > 0 {
			part := list
			if end := bytes.IndexAny(list, ",(\n"); end >= 0 {
				part, list = list[:end], list[end+1:]
			} else {
				list = nil
			}
			if first := firstField(part); len(first) > 0 && first[0] != '#' && first[0] != '*' {
				f(append(name, first...))
			}
		}
	}
}

// lastBreak returns the offset of the last byte that ends a statement, or -1.
func lastBreak(src []byte) int {
	for i := len(src) - 1; i >= 0; i-- {
		if c := src[i]; c == '\n' || c == ';' || c == ':' {
			return i
		}
	}
	return -1
}

func firstField(part []byte) []byte {
	for first := range bytes.FieldsSeq(part) {
		return first
	}
	return nil
}

func line(src []byte) []byte {
	l, _, _ := bytes.Cut(src, []byte{'\n'})
	l, _, _ = bytes.Cut(l, []byte{';'})
	return l
}

// parallel calls f for 0 to n-1 on all processors and returns the error of the
// lowest number that failed. A cancelled context ends it early.
func parallel(ctx context.Context, n int, f func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				errs[i] = f(i)
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// unreadable is the message for a file that could not be read.
func unreadable(err error) string {
	var perr *fs.PathError
	if errors.As(err, &perr) {
		err = perr.Err
	}
	return fmt.Sprintf("cannot be read: %v", err)
}
