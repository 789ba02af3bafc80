package teardown

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ncclfix/patchers"
)

const opensGroup = "import torch.distributed as dist\ndist.init_process_group()\n"

// partsOf returns the paths of the parts of a tree.
func partsOf(t *testing.T, files map[string]string) [][]string {
	t.Helper()
	scanned, err := scanTree(&patchers.Pass{Context: context.Background(), Tree: treeOf(files), Report: func(patchers.Finding) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer scanned.close()
	var out [][]string
	for _, part := range scanned.parts() {
		var paths []string
		for _, n := range part {
			paths = append(paths, scanned.sources[n].path)
		}
		out = append(out, paths)
	}
	return out
}

// What belongs together is in one part, and what matters to nobody is in none.
func TestPartsHoldWhatBelongsTogether(t *testing.T) {
	for _, test := range []struct {
		why   string
		files map[string]string
		want  string
	}{
		{"an import", map[string]string{"a.py": "import b", "b.py": opensGroup}, "a.py b.py"},
		{"an import in a function, at a distance", map[string]string{"a.py": "def f():\n    from c import d", "c.py": "import e", "e.py": opensGroup}, "a.py c.py e.py"},
		{"a package", map[string]string{"p/__init__.py": "", "p/a.py": opensGroup, "p/b.py": ""}, "p/__init__.py p/a.py p/b.py"},
		{"a conftest.py above", map[string]string{"t/conftest.py": opensGroup, "t/u/test_a.py": "", "test_b.py": ""}, "t/conftest.py t/u/test_a.py"},
		{"nothing", map[string]string{"a.py": "import b", "b.py": "", "c.py": opensGroup}, "c.py"},
	} {
		parts := partsOf(t, test.files)
		if len(parts) != 1 || strings.Join(parts[0], " ") != test.want {
			t.Errorf("%s: got %v, want one part with %s", test.why, parts, test.want)
		}
	}
}

// Projects that have nothing to do with each other are put together only as long as
// there are few files.
func TestPartsAreBounded(t *testing.T) {
	files := map[string]string{}
	for i := range 5 {
		for j := range maxPart / 2 {
			files[fmt.Sprintf("p%d/m%d.py", i, j)] = "import m0"
		}
		files[fmt.Sprintf("p%d/m0.py", i)] = opensGroup
	}
	var sizes []int
	for _, part := range partsOf(t, files) {
		if !slices.IsSortedFunc(part, strings.Compare) {
			t.Errorf("a part is not in the order of the tree")
		}
		sizes = append(sizes, len(part))
	}
	if want := []int{maxPart, maxPart, maxPart / 2}; !slices.Equal(sizes, want) {
		t.Errorf("got parts of %v files, want %v", sizes, want)
	}
}
