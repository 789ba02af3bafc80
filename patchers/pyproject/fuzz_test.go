package pyproject

import (
	"bytes"
	"strings"
	"testing"

	"ncclfix/patchers/diff"
)

// FuzzAddopts gives any file to the patcher and holds it to its promises: what
// could be decoded still can, and says the same but for addopts; bytes are only
// added; a second run has nothing to do.
func FuzzAddopts(f *testing.F) {
	for _, r := range rows() {
		for i, name := range configNames() {
			if name == r.file {
				f.Add(byte(i), []byte(r.before))
			}
		}
	}
	f.Fuzz(func(t *testing.T, file byte, src []byte) {
		names := configNames()
		name := names[int(file)%len(names)]
		c, err := readConfig(name, src)
		if err != nil {
			return
		}
		if args, err := c.args(); err != nil || shows(args) || c.refuse != "" {
			return
		}
		edits, err := c.withOption(setupShow)
		if err != nil {
			return
		}
		after, err := diff.Apply(src, edits)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if err := verify(name, src, after); err != nil {
			t.Fatalf("%q became %q: %v", src, after, err)
		}
		again, err := readConfig(name, after)
		if err != nil {
			t.Fatalf("%q: %v", after, err)
		}
		if args, err := again.args(); err != nil || !shows(args) || !again.rules {
			t.Fatalf("%q became %q, with the options %q, %v", src, after, args, err)
		}
		for _, e := range edits {
			// Only {} is replaced, by the same with something in it.
			if old := src[e.Start:e.End]; len(old) > 0 && strings.Trim(string(old), "{} \t\r\n") != "" {
				t.Fatalf("%q became %q: took away %q", src, after, old)
			}
		}
		versioned, err := again.withVersion(minVersion)
		if err != nil {
			return
		}
		last, err := diff.Apply(after, versioned)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(last, []byte(minVersion)) {
			t.Fatalf("%q became %q without the version", after, last)
		}
	})
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
