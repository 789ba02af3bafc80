package teardown

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"

	"ncclfix/patchers"
	"ncclfix/patchers/pysyntax"
)

// treeOf returns a tree of files, in memory.
func treeOf(files map[string]string) patchers.Tree {
	fsys := fstest.MapFS{}
	for name, data := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(data), Mode: 0o644}
	}
	return patchers.Tree{FS: fsys, Files: slices.Sorted(maps.Keys(files))}
}

// plan runs the patcher over a tree of files.
func plan(t testing.TB, files map[string]string) (*patchers.ChangeSet, patchers.Tree) {
	t.Helper()
	tree := treeOf(files)
	ps := []*patchers.Patcher{Patcher}
	findings, err := patchers.Analyze(context.Background(), tree, patchers.Options{}, ps)
	if err != nil {
		t.Fatal(err)
	}
	set, err := patchers.Plan(tree, ps, findings)
	if err != nil {
		t.Fatal(err)
	}
	return set, tree
}

// FuzzInvariants checks what must hold of every repair, whatever the file: it
// still parses, only text was inserted, and a second run finds nothing to do.
// The file is tried as a script and as a test module, beside a module that opens
// a group for its callers.
func FuzzInvariants(f *testing.F) {
	scripts, err := filepath.Glob("../../testdata/script/teardown-*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range scripts {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range txtar.Parse(data).Files {
			if strings.HasSuffix(file.Name, ".py") && !strings.HasPrefix(file.Name, "want/") {
				f.Add(file.Data)
			}
		}
	}
	f.Add([]byte("import torch.distributed as dist\ndist.init_process_group()\n"))
	f.Add([]byte("from utils import init_dist\ndef test_a():\n\tinit_dist(0, 1)\n\treturn"))
	f.Fuzz(func(t *testing.T, src []byte) {
		for _, name := range []string{"run.py", "test_run.py"} {
			files := map[string]string{
				name:       string(src),
				"utils.py": "import torch.distributed as dist\n\n\ndef init_dist(rank, size):\n    dist.init_process_group('gloo', rank=rank, world_size=size)\n",
			}
			set, _ := plan(t, files)
			for _, r := range set.Results {
				if r.Outcome == patchers.Broken {
					t.Fatalf("%s: %s\n%s", name, r.Reason, src)
				}
			}
			for _, c := range set.Files {
				if !inserted(c.Old, c.New) {
					t.Fatalf("%s: more than an insertion:\n%s", name, c.New)
				}
				if bytes.HasSuffix(c.Old, []byte("\n")) != bytes.HasSuffix(c.New, []byte("\n")) {
					t.Fatalf("%s: the newline at the end changed:\n%q", name, c.New)
				}
				files[c.Path] = string(c.New)
			}
			if len(set.Files) == 0 {
				continue
			}
			again, _ := plan(t, files)
			if len(again.Files) > 0 {
				t.Fatalf("%s: a second run changes\n%s\ninto\n%s", name, again.Files[0].Old, again.Files[0].New)
			}
		}
	})
}

// inserted reports whether new is old with text inserted: whether old's bytes
// stand in new in their order.
func inserted(old, new []byte) bool {
	for _, c := range new {
		if len(old) > 0 && old[0] == c {
			old = old[1:]
		}
	}
	return len(old) == 0
}

// FuzzParse checks that no input makes the parser panic, that what it returns
// lies inside the file, also where only a part of the file is of interest.
func FuzzParse(f *testing.F) {
	f.Add([]byte("def f():\n  return t'{x!r:>{y}}'\n"))
	f.Add([]byte("lazy import a\ntry: pass\nexcept A, B: pass\n"))
	f.Add([]byte("import torch# a\n@a # b\ndef f(a=1, # c\n  b=2): # d\n  x = 1\n  # e\n  exit(f(1))# f\nfor torch in a: pass\n"))
	p := pysyntax.NewParser()
	f.Cleanup(p.Close)
	f.Fuzz(func(t *testing.T, src []byte) {
		if _, err := readPython(context.Background(), p, src, nil); err != nil {
			return
		}
		for _, interest := range []*pysyntax.Interest{nil, interest(map[string]bool{"f": true})} {
			file, err := readPython(context.Background(), p, src, interest)
			if err != nil {
				t.Fatalf("%v in a part of %q", err, src)
			}
			last := -1
			eachStmt(file.Body, func(s *pysyntax.Stmt) {
				if s.Start < last || s.End < s.Start || s.End > len(src) {
					t.Fatalf("statement [%d,%d) behind %d in %q", s.Start, s.End, last, src)
				}
				last = s.Start
			})
		}
	})
}

// eachStmt calls f for all statements, those inside others included, in order.
func eachStmt(list []*pysyntax.Stmt, f func(*pysyntax.Stmt)) {
	for _, s := range list {
		f(s)
		for _, b := range s.Blocks {
			eachStmt(b.Body, f)
		}
	}
}
