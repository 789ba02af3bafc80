package pyproject

import (
	"bytes"
	"slices"
	"testing"

	"ncclfix/patchers"
)

// FuzzAddopts gives any file to the patcher and holds it to its promises: what
// could be decoded still can, and says the same but for addopts; bytes are only
// added; a second run has nothing to do; the two settings go together.
func FuzzAddopts(f *testing.F) {
	for _, r := range rows() {
		f.Add(byte(slices.Index(configNames(), r.file)), []byte(r.before))
	}
	f.Fuzz(func(t *testing.T, file byte, src []byte) {
		names := configNames()
		name := names[int(file)%len(names)]
		tree := newTree("test_x.py", distributedTest, name, string(src))

		findings := analyze(t, tree, "pytest/setup-show")
		set := plan(t, tree, findings)
		if n := set.Count(patchers.Broken); n > 0 {
			t.Fatalf("%q: %+v", src, set.Results)
		}
		for _, c := range set.Files {
			if err := verify(c.Path, c.Old, c.New); err != nil {
				t.Fatalf("%q became %q: %v", c.Old, c.New, err)
			}
			if !onlyAdds(c.Old, c.New) {
				t.Fatalf("%q became %q: took something away", c.Old, c.New)
			}
			again := newTree("test_x.py", distributedTest, name, string(src), c.Path, string(c.New))
			if left := analyze(t, again, "pytest/setup-show"); len(left) > 0 {
				t.Fatalf("%q became %q: %+v", c.Old, c.New, left)
			}
		}

		both := plan(t, tree, analyze(t, tree, "pytest/setup-show", "pytest/minversion"))
		if n := both.Count(patchers.Broken); n > 0 {
			t.Fatalf("%q: %+v", src, both.Results)
		}
	})
}

// onlyAdds reports whether the bytes of old are all in new, in their order.
func onlyAdds(old, new []byte) bool {
	for _, b := range old {
		n := bytes.IndexByte(new, b)
		if n < 0 {
			return false
		}
		new = new[n+1:]
	}
	return true
}

// FuzzSplit looks for lines that split reads and that it would not read again
// once an option is added to them.
func FuzzSplit(f *testing.F) {
	f.Add(`-m "a b" -q`)
	f.Add(`a\ b 'c`)
	f.Fuzz(func(t *testing.T, line string) {
		args, err := split(line)
		if err != nil {
			return
		}
		more, err := split(setupShow + " " + line)
		if err != nil || !extends(args, more, setupShow) {
			t.Fatalf("%q: %q and %q, %v", line, args, more, err)
		}
	})
}
