package gitpatch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
)

func parse(t testing.TB, patch string) *Series {
	t.Helper()
	s, err := Parse([]byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// treeOf makes a tree of paths and texts. A path that ends in "*" is executable.
func treeOf(files map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	for path, text := range files {
		mode := fs.FileMode(0o644)
		if p, ok := strings.CutSuffix(path, "*"); ok {
			path, mode = p, 0o755
		}
		tree[path] = &fstest.MapFile{Data: []byte(text), Mode: mode}
	}
	return tree
}

// after returns the tree with the changes made, in the form that treeOf takes.
func after(t testing.TB, tree fs.FS, set *patchers.ChangeSet) map[string]string {
	t.Helper()
	files := map[string]string{}
	name := func(path string, mode fs.FileMode) string {
		if mode&0o100 != 0 {
			path += "*"
		}
		return path
	}
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := fs.ReadFile(tree, path)
		files[name(path, info.Mode())] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range set.Files {
		if f.Op != patchers.Create {
			old, ok := files[name(f.Path, f.OldMode)]
			if !ok || old != string(f.Old) {
				t.Errorf("%s: the change set takes %q for the old text, but it is %q", f.Path, f.Old, old)
			}
			delete(files, name(f.Path, f.OldMode))
		}
		if f.Op != patchers.Delete {
			files[name(f.Path, f.Mode)] = string(f.New)
		}
	}
	return files
}

const ten = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"

func TestApply(t *testing.T) {
	head := "diff --git a/f b/f\n--- a/f\n+++ b/f\n"
	tests := []struct {
		name  string
		patch string
		old   map[string]string
		new   map[string]string
		off   []Offset
	}{
		{
			name:  "at its line",
			patch: head + "@@ -4,3 +4,4 @@ func\n 4\n 5\n+x\n 6\n",
			old:   map[string]string{"f": ten},
			new:   map[string]string{"f": "1\n2\n3\n4\n5\nx\n6\n7\n8\n9\n10\n"},
		},
		{
			name:  "further up",
			patch: head + "@@ -7,3 +7,4 @@\n 4\n 5\n+x\n 6\n",
			old:   map[string]string{"f": ten},
			new:   map[string]string{"f": "1\n2\n3\n4\n5\nx\n6\n7\n8\n9\n10\n"},
			off:   []Offset{{Commit: 1, Path: "f", Hunk: 1, Line: 4, By: -3}},
		},
		{
			name:  "as near above as below: below",
			patch: head + "@@ -3,2 +3,3 @@\n a\n+x\n b\n",
			old:   map[string]string{"f": "0\na\nb\na\nb\n0\n"},
			new:   map[string]string{"f": "0\na\nb\na\nx\nb\n0\n"},
			off:   []Offset{{Commit: 1, Path: "f", Hunk: 1, Line: 4, By: 1}},
		},
		{
			name:  "not where a hunk has been",
			patch: head + "@@ -2,2 +2,3 @@\n a\n+x\n b\n@@ -3,2 +4,3 @@\n a\n+y\n b\n",
			old:   map[string]string{"f": "0\na\nb\n0\na\nb\n0\n"},
			new:   map[string]string{"f": "0\na\nx\nb\n0\na\ny\nb\n0\n"},
			off:   []Offset{{Commit: 1, Path: "f", Hunk: 2, Line: 6, By: 2}},
		},
		{
			name:  "without the blanks of empty context lines",
			patch: head + "@@ -2,4 +2,5 @@\n a\n\n+x\n\n b\n",
			old:   map[string]string{"f": "0\na\n\n\nb\n"},
			new:   map[string]string{"f": "0\na\n\nx\n\nb\n"},
		},
		{
			name:  "no newline before",
			patch: head + "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n",
			old:   map[string]string{"f": "a\nb"},
			new:   map[string]string{"f": "a\nb\n"},
		},
		{
			name:  "no newline before and after, in another language",
			patch: head + "@@ -1,2 +1,2 @@\n-a\n+A\n b\n\\ Kein Zeilenumbruch am Dateiende.\n",
			old:   map[string]string{"f": "a\nb"},
			new:   map[string]string{"f": "A\nb"},
		},
		{
			name:  "CRLF",
			patch: head + "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n",
			old:   map[string]string{"f": "a\r\nb\r\n"},
			new:   map[string]string{"f": "a\r\nB\r\n"},
		},
		{
			name:  "CRLF in the patch's own lines",
			patch: "diff --git a/f b/f\r\nindex 1234567..89abcde 100644\r\n--- a/f\r\n+++ b/f\r\n@@ -1 +1 @@\r\n-b\r\n+B\r\n",
			old:   map[string]string{"f": "b\r\n"},
			new:   map[string]string{"f": "B\r\n"},
		},
		{
			name:  "new file",
			patch: "diff --git a/d/f b/d/f\nnew file mode 100644\nindex 0000000..1234567\n--- /dev/null\n+++ b/d/f\n@@ -0,0 +1 @@\n+x\n",
			new:   map[string]string{"d/f": "x\n"},
		},
		{
			name:  "new empty file that can be executed",
			patch: "diff --git a/f b/f\nnew file mode 100755\nindex 0000000..e69de29\n",
			new:   map[string]string{"f*": ""},
		},
		{
			name:  "deleted file",
			patch: "diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n-y\n",
			old:   map[string]string{"f": "x\ny\n", "g": ""},
			new:   map[string]string{"g": ""},
		},
		{
			name:  "mode alone",
			patch: "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n",
			old:   map[string]string{"f": "x\n"},
			new:   map[string]string{"f*": "x\n"},
		},
		{
			name:  "the mode in the index line is not set",
			patch: "diff --git a/f b/f\nindex 1234567..89abcde 100644\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-b\n+B\n",
			old:   map[string]string{"f*": "b\n"},
			new:   map[string]string{"f*": "B\n"},
		},
		{
			name:  "rename with a change",
			patch: "diff --git a/f b/d/g\nsimilarity index 80%\nrename from f\nrename to d/g\n--- a/f\n+++ b/d/g\n@@ -1 +1 @@\n-b\n+B\n",
			old:   map[string]string{"f": "b\n"},
			new:   map[string]string{"d/g": "B\n"},
		},
		{
			name: "two files trade their names",
			patch: "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n" +
				"diff --git a/g b/f\nsimilarity index 100%\nrename from g\nrename to f\n",
			old: map[string]string{"f": "f\n", "g": "g\n"},
			new: map[string]string{"f": "g\n", "g": "f\n"},
		},
		{
			name: "copy of what the commit found",
			patch: "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-b\n+B\n" +
				"diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n",
			old: map[string]string{"f": "b\n"},
			new: map[string]string{"f": "B\n", "g": "b\n"},
		},
		{
			name: "a file recurs",
			patch: head + "@@ -1 +1 @@\n-a\n+b\n" + head + "@@ -1 +1 @@\n-b\n+c\n" +
				"From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nSubject: [PATCH 2/2] go on\n and on\n\n" + head + "@@ -1 +1 @@\n-c\n+d\n-- \n2.39.5\n",
			old: map[string]string{"f": "a\n"},
			new: map[string]string{"f": "d\n"},
		},
		{
			name:  "and comes back as it was",
			patch: head + "@@ -1 +1 @@\n-a\n+b\n" + head + "@@ -1 +1 @@\n-b\n+a\n",
			old:   map[string]string{"f": "a\n"},
			new:   map[string]string{"f": "a\n"},
		},
		{
			name:  "names with blanks, quotes and other letters",
			patch: "diff --git \"a/d d/\\303\\274\\\"\" \"b/d d/\\303\\274\\\"\"\n--- \"a/d d/\\303\\274\\\"\"\n+++ \"b/d d/\\303\\274\\\"\"\n@@ -1 +1 @@\n-b\n+B\n" + "diff --git a/a b/c b/a b/c\nold mode 100644\nnew mode 100755\n" + "diff --git a/t t b/t t\n--- a/t t\t\n+++ b/t t\t\n@@ -1 +1 @@\n-b\n+B\n",
			old:   map[string]string{"d d/ü\"": "b\n", "a b/c": "", "t t": "b\n"},
			new:   map[string]string{"d d/ü\"": "B\n", "a b/c*": "", "t t": "B\n"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := treeOf(tt.old)
			set, offsets, err := parse(t, tt.patch).Apply(tree)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.new, after(t, tree, set)); d != "" {
				t.Errorf("files (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.off, offsets); d != "" {
				t.Errorf("offsets (-want +got):\n%s", d)
			}
			for _, f := range set.Files {
				if f.Op == patchers.Modify && f.Mode == f.OldMode && string(f.Old) == string(f.New) {
					t.Errorf("%s is listed but does not change", f.Path)
				}
			}
		})
	}
}

func TestConflict(t *testing.T) {
	head := "diff --git a/f b/f\n--- a/f\n+++ b/f\n"
	tests := []struct {
		name, patch string
		old         map[string]string
		want        Conflict
	}{
		{
			"context differs", head + "@@ -4,3 +4,4 @@\n 4\n 5\n+x\n six\n", map[string]string{"f": ten},
			Conflict{Path: "f", Hunk: 1, Line: 4, Patch: 4, Reason: "it does not fit", Expected: []string{"4\n", "5\n", "six\n"}, Near: 6, Matched: 2},
		},
		{
			"second hunk", head + "@@ -1,2 +1,3 @@\n 1\n+x\n 2\n@@ -8,2 +9,2 @@\n eight\n-9\n+nine\n", map[string]string{"f": ten},
			Conflict{Path: "f", Hunk: 2, Line: 8, Patch: 8, Reason: "it does not fit", Expected: []string{"eight\n", "9\n"}},
		},
		{
			"not at the beginning", head + "@@ -1,2 +1,3 @@\n 4\n+x\n 5\n", map[string]string{"f": ten},
			Conflict{Path: "f", Hunk: 1, Line: 1, Patch: 4, Reason: "it does not fit", Expected: []string{"4\n", "5\n"}, Near: 6, Matched: 2},
		},
		{
			"not at the end", head + "@@ -9,1 +9,2 @@\n 8\n+x\n", map[string]string{"f": ten},
			Conflict{Path: "f", Hunk: 1, Line: 9, Patch: 4, Reason: "it does not fit", Expected: []string{"8\n"}, Near: 9, Matched: 1},
		},
		{
			"newline at the end", head + "@@ -10 +10 @@\n-10\n\\ No newline at end of file\n+ten\n", map[string]string{"f": ten},
			Conflict{Path: "f", Hunk: 1, Line: 10, Patch: 4, Reason: "it does not fit", Expected: []string{"10"}},
		},
		{
			"CRLF", head + "@@ -2,2 +2,2 @@\n-a\n+A\n b\n", map[string]string{"f": "0\r\na\r\nb\r\n"},
			Conflict{Path: "f", Hunk: 1, Line: 2, Patch: 4, Reason: "it does not fit", Expected: []string{"a\n", "b\n"}},
		},
		{
			"no such file", head + "@@ -1 +1 @@\n-a\n+b\n", nil,
			Conflict{Path: "f", Patch: 1, Reason: "there is no such file"},
		},
		{
			"there already", "diff --git a/f b/f\nnew file mode 100644\n", map[string]string{"f": ""},
			Conflict{Path: "f", Patch: 1, Reason: "the file is there already"},
		},
		{
			"renamed to what is there", "diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n", map[string]string{"f": "", "g": ""},
			Conflict{Path: "g", Patch: 1, Reason: "the file is there already"},
		},
		{
			"more in the file to delete", "diff --git a/f b/f\ndeleted file mode 100644\n", map[string]string{"f": "x\n"},
			Conflict{Path: "f", Patch: 1, Reason: "the file to delete has more in it"},
		},
		{
			"deleted before", "diff --git a/f b/f\ndeleted file mode 100644\n" + head + "@@ -0,0 +1 @@\n+b\n", map[string]string{"f": ""},
			Conflict{Path: "f", Patch: 3, Reason: "there is no such file"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Commit = 1
			set, _, err := parse(t, tt.patch).Apply(treeOf(tt.old))
			var got *Conflict
			if !errors.As(err, &got) || set != nil {
				t.Fatalf("got %v, %v, want a conflict", set, err)
			}
			if d := cmp.Diff(tt.want, *got); d != "" {
				t.Errorf("conflict (-want +got):\n%s", d)
			}
		})
	}
}

func TestConflictMessage(t *testing.T) {
	c := &Conflict{Commit: 2, Subject: "Count\x1b[2J", Path: "src/q.c", Hunk: 3, Line: 12, Patch: 40, Reason: "it does not fit"}
	want := `applying commit 2 ("Count\x1b[2J"), patch line 40: src/q.c: hunk 3, line 12: it does not fit`
	if c.Error() != want {
		t.Errorf("got  %s\nwant %s", c, want)
	}
}

// A tree that cannot be read is no conflict.
func TestUnreadableTree(t *testing.T) {
	s := parse(t, "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n")
	tree := fstest.MapFS{"f/g": {}}
	var c *Conflict
	if _, _, err := s.Apply(tree); err == nil || errors.As(err, &c) {
		t.Errorf("Apply: %v, want an error that is no conflict", err)
	}
	if _, err := s.Judge(tree); err == nil {
		t.Error("Judge: no error")
	}
}

func TestParseRefuses(t *testing.T) {
	head := "diff --git a/f b/f\n--- a/f\n+++ b/f\n"
	tests := []struct {
		name, patch string
		line        int
		reason      string
	}{
		{"nothing", "", 1, "no diff in it"},
		{"a letter", "Dear all,\n\nplease find attached\n", 4, "no diff in it"},
		{"up", "diff --git a/../f b/../f\nold mode 100644\nnew mode 100755\n", 1, `"../f" leads out of the tree`},
		{"up by the way", "diff --git a/f b/f\n--- a/d/../../f\n+++ b/d/../../f\n@@ -1 +1 @@\n-a\n+b\n", 1, `"d/../../f" leads out of the tree`},
		{"rename up", "diff --git a/f b/g\nrename from f\nrename to ../g\n", 1, `"../g" leads out of the tree`},
		{"absolute", "diff --git a//etc/f b//etc/f\nnew file mode 100644\n", 1, `"/etc/f" leads out of the tree`},
		{"the repository", "diff --git a/d/.GIT/hooks/x b/d/.GIT/hooks/x\nnew file mode 100755\n", 1, `"d/.GIT/hooks/x" is part of a repository itself`},
		{"nothing to strip", "diff --git f f\n--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n", 1, "the header does not say which file it is about"},
		{"symlink", "diff --git a/f b/f\nnew file mode 120000\n", 2, "mode 120000 is not that of a regular file"},
		{"symlink changed", "diff --git a/f b/f\nindex 1234567..89abcde 120000\n", 2, "mode 120000 is not that of a regular file"},
		{"submodule", "diff --git a/f b/f\nindex 1234567..89abcde 160000\n", 2, "mode 160000 is not that of a regular file"},
		{"mode", "diff --git a/f b/f\nold mode rw-r--r--\n", 2, `invalid mode "rw-r--r--"`},
		{"binary", "diff --git a/f b/f\nindex 1234567..89abcde 100644\nGIT binary patch\nliteral 0\n", 3, "binary files are not patched"},
		{"binary without its data", "diff --git a/f b/f\nindex 1234567..89abcde 100644\nBinary files a/f and b/f differ\n", 3, "binary files are not patched"},
		{"no change", "diff --git a/f b/f\nindex 1234567..89abcde 100644\n", 1, "a file header without a change"},
		{"two names", "diff --git a/f b/f\nrename from f\nrename to g\n--- a/f\n+++ b/h\n", 5, `the header names "g" and "h"`},
		{"two fates", "diff --git a/f b/f\nnew file mode 100644\ndeleted file mode 100644\n", 1, "the header contradicts itself"},
		{"new with a past", "diff --git a/f b/f\nnew file mode 100644\n--- a/f\n+++ b/f\n", 1, `the header has "f" where it says there is no file`},
		{"new with old lines", "diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", 8, "a new file depends on old contents"},
		{"deleted with new lines", "diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +1 @@\n-a\n+b\n", 8, "a deleted file still has contents"},
		{"hunk alone", "hello\n@@ -1 +1 @@\n-a\n+b\n", 2, "a hunk without a file header"},
		{"diff -u", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", 1, `a diff without a "diff --git" line`},
		{"hunk header", head + "@@ -1 @@\n-a\n+b\n", 4, "malformed hunk header"},
		{"huge line number", head + "@@ -99999999999 +1 @@\n-a\n+b\n", 4, "malformed hunk header"},
		{"cut off between lines", head + "@@ -1,2 +1,2 @@\n-a\n+b\n", 7, "the hunk is cut off"},
		{"cut off in a line", head + "@@ -1 +1 @@\n-a\n+b", 6, "the hunk is cut off"},
		{"signature too early", head + "@@ -1,2 +1,2 @@\n a\n-- \n2.39.5\n", 7, "the hunk is shorter than its header says"},
		{"too long", head + "@@ -1 +1 @@\n-a\n-b\n+b\n", 6, "the hunk is not as long as its header says"},
		{"context only", head + "@@ -1 +1 @@\n a\n", 6, "the hunk changes nothing"},
		{"no newline of nothing", head + "@@ -1 +1 @@\n\\ No newline at end of file\n-a\n+b\n", 5, "malformed hunk"},
		{"no newline twice", head + "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n\\ No newline at end of file\n+b\n", 7, "malformed hunk"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse([]byte(tt.patch))
			var got *SyntaxError
			if !errors.As(err, &got) {
				t.Fatalf("got %v, want a SyntaxError", err)
			}
			if d := cmp.Diff(SyntaxError{tt.line, tt.reason}, *got); d != "" {
				t.Errorf("error (-want +got):\n%s", d)
			}
		})
	}
}

// The mailbox has the traits of those that are found beside sources: five
// mails, four of which change one file, a last one that was made from the first
// tree and fits one line off, and empty context lines without their blank.
func TestMailbox(t *testing.T) {
	data, err := os.ReadFile("testdata/mailbox/series.patch")
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, string(data))
	old, new := os.DirFS("testdata/mailbox/old"), os.DirFS("testdata/mailbox/new")
	nothing := &patchers.ChangeSet{}
	pristine, patched := after(t, old, nothing), after(t, new, nothing)

	var mails []string
	for _, c := range s.Commits {
		mails = append(mails, c.Subject)
	}
	want := []string{"Open the lanes in a ring", "Add a receive queue to each lane", "Count what is done", "Trace only if asked to", "Make progress only when traced"}
	if d := cmp.Diff(want, mails); d != "" {
		t.Errorf("subjects (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"CMakeLists.txt", "src/net/queue.c", "src/net/queue.h"}, s.Paths()); d != "" {
		t.Errorf("paths (-want +got):\n%s", d)
	}

	v, err := s.Judge(old)
	if err != nil || v.State != Applies {
		t.Fatalf("old tree: %+v, %v", v, err)
	}
	if d := cmp.Diff(patched, after(t, old, v.Changes)); d != "" {
		t.Errorf("old tree, patched (-want +got):\n%s", d)
	}
	offsets := []Offset{
		{Commit: 5, Path: "src/net/queue.c", Hunk: 1, Line: 6, By: 1},
		{Commit: 5, Path: "src/net/queue.c", Hunk: 2, Line: 14, By: 1},
	}
	if d := cmp.Diff(offsets, v.Offsets); d != "" {
		t.Errorf("offsets (-want +got):\n%s", d)
	}

	if v, err = s.Judge(new); err != nil || v.State != Applied || slices.Contains(v.In, false) || len(v.Changes.Files) > 0 {
		t.Errorf("new tree: %+v, %v", v, err)
	}
	back, _, err := s.Reverse().Apply(new)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(pristine, after(t, new, back)); d != "" {
		t.Errorf("new tree, taken back (-want +got):\n%s", d)
	}

	// With only some of the commits in the tree, those are found, and the others
	// lead to the same end.
	for _, in := range [][]int{{0}, {0, 1, 2}, {3}, {4}, {0, 4}, {1, 2}} {
		part, have := &Series{}, make([]bool, 5)
		for _, i := range in {
			part.Commits = append(part.Commits, s.Commits[i])
			have[i] = true
		}
		set, _, err := part.Apply(old)
		if err != nil {
			t.Fatalf("making %v: %v", in, err)
		}
		tree := treeOf(after(t, old, set))
		v, err := s.Judge(tree)
		if err != nil || v.State != Partly {
			t.Errorf("with %v: %+v, %v", in, v, err)
			continue
		}
		if d := cmp.Diff(have, v.In); d != "" {
			t.Errorf("with %v: commits (-want +got):\n%s", in, d)
		}
		if d := cmp.Diff(patched, after(t, tree, v.Changes)); d != "" {
			t.Errorf("with %v: (-want +got):\n%s", in, d)
		}
	}

	// What no mail changes, but the last one looks at, is different.
	other := treeOf(pristine)
	other["src/net/queue.c"].Data = []byte(strings.ReplaceAll(pristine["src/net/queue.c"], "4096", "65536"))
	v, err = s.Judge(other)
	if err != nil || v.State != Conflicts || slices.Contains(v.In, true) || v.Conflict.Commit != 5 || v.Conflict.Path != "src/net/queue.c" || len(v.Changes.Files) > 0 {
		t.Errorf("other tree: %+v, %v", v, err)
	}
}

// With a commit in the tree, it is the first of the others that does not fit.
func TestPartlyConflicts(t *testing.T) {
	mail := func(id byte, path string) string {
		return "From " + strings.Repeat(string(id), 40) + " Mon Sep 17 00:00:00 2001\nSubject: [PATCH] change " + path + "\n\n" +
			"diff --git a/" + path + " b/" + path + "\n--- a/" + path + "\n+++ b/" + path + "\n@@ -1 +1 @@\n-old\n+new\n-- \n2.39.5\n\n"
	}
	s := parse(t, mail('a', "f")+mail('b', "g"))
	v, err := s.Judge(treeOf(map[string]string{"f": "new\n", "g": "other\n"}))
	if err != nil {
		t.Fatal(err)
	}
	want := &Verdict{
		State: Conflicts, In: []bool{true, false}, Changes: &patchers.ChangeSet{},
		Conflict: &Conflict{Commit: 2, Subject: "change g", Path: "g", Hunk: 1, Line: 1, Patch: 19, Reason: "it does not fit", Expected: []string{"old\n"}},
	}
	if d := cmp.Diff(want, v); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestReverseTwice(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "mailbox", "series.patch"))
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, string(data)+"diff --git a/f b/g\nold mode 100644\nnew mode 100755\nsimilarity index 100%\nrename from f\nrename to g\n")
	if d := cmp.Diff(s, s.Reverse().Reverse()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// FuzzParse holds that what is read is sound: hunks are as long as their headers
// say, paths stay in the tree, and applying works or fails, but does not panic.
func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/mailbox/series.patch")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data), "a\nb\n")
	f.Add("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n", "a\nb")
	f.Add("diff --git \"a/\\303\\274\" b/g\nrename from \"\\303\\274\"\nrename to g\n", "")
	f.Add("diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "x\n")
	f.Fuzz(func(t *testing.T, patch, text string) {
		s, err := Parse([]byte(patch))
		if err != nil {
			var syntax *SyntaxError
			if !errors.As(err, &syntax) || syntax.Line < 1 || syntax.Line > strings.Count(patch, "\n")+1 {
				t.Fatalf("error %v", err)
			}
			return
		}
		tree := fstest.MapFS{}
		for _, c := range s.Commits {
			for _, d := range c.Files {
				for _, path := range []string{d.Old, d.New} {
					if path != "" && !fs.ValidPath(path) {
						t.Fatalf("path %q", path)
					}
				}
				for _, h := range d.Hunks {
					if old, new := h.without('+'), h.without('-'); len(old) != h.OldLines || len(new) != h.NewLines {
						t.Fatalf("hunk at line %d: %d and %d lines, want %d and %d", h.Line, len(old), len(new), h.OldLines, h.NewLines)
					}
				}
			}
		}
		for _, path := range s.Paths() {
			tree[path] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		}
		set, _, err := s.Apply(tree)
		if err != nil {
			return
		}
		for _, f := range set.Files {
			switch {
			case f.Op == patchers.Delete:
				delete(tree, f.Path)
			default:
				tree[f.Path] = &fstest.MapFile{Data: f.New, Mode: f.Mode}
			}
		}
		if _, err := s.Judge(tree); err != nil && !errors.Is(err, fs.ErrInvalid) {
			t.Fatalf("judging the result: %v", err)
		}
	})
}
