// Package diff edits files by byte ranges and shows the result as a unified
// diff that git apply takes.
//
// It knows nothing of Python or TOML: an [Edit] is two offsets and a string.
// Edits are made by patchers against one unmodified file, put together by
// [Merge], carried out by [Apply] and shown by [Unified].
package diff

import (
	"cmp"
	"fmt"
	"slices"
)

// An Edit replaces the bytes [Start, End) of a file with New. Offsets count
// bytes from 0 and refer to the file before any edit; Start == End inserts.
type Edit struct {
	Start, End int
	New        string
}

// Insert returns the edit that puts text in front of the byte at offset at.
func Insert(at int, text string) Edit { return Edit{Start: at, End: at, New: text} }

// Sort orders edits by position, insertions in front of the replacement that
// begins at the same byte. Edits at one position keep the order they had.
func Sort(edits []Edit) {
	slices.SortStableFunc(edits, compare)
}

func compare(a, b Edit) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End))
}

// Validate reports the first reason why edits cannot be applied to a file of
// size bytes: an offset outside the file, a negative length, or two edits that
// overlap. It does not need edits to be sorted.
func Validate(edits []Edit, size int) error {
	sorted := slices.Clone(edits)
	Sort(sorted)
	last := 0
	for _, e := range sorted {
		switch {
		case e.Start < 0 || e.End < e.Start || e.End > size:
			return fmt.Errorf("edit [%d,%d) lies outside a file of %d bytes", e.Start, e.End, size)
		case e.Start < last:
			return fmt.Errorf("edit [%d,%d) overlaps the edit that ends at %d", e.Start, e.End, last)
		}
		last = e.End
	}
	return nil
}

// Apply returns src with the edits made. Several insertions at one offset come
// out in the order in which they are given. On invalid edits it returns nil and
// the error of [Validate]; src itself is never changed.
func Apply(src []byte, edits []Edit) ([]byte, error) {
	if err := Validate(edits, len(src)); err != nil {
		return nil, err
	}
	sorted := slices.Clone(edits)
	Sort(sorted)
	grown := 0
	for _, e := range sorted {
		grown += len(e.New)
	}
	out := make([]byte, 0, len(src)+grown)
	at := 0
	for _, e := range sorted {
		out = append(out, src[at:e.Start]...)
		out = append(out, e.New...)
		at = e.End
	}
	return append(out, src[at:]...), nil
}

// Merge puts two lists of edits of the same file together and reports whether
// they go together. Both lists must be valid on their own.
//
// An edit that both lists hold is made once: two repairs that each need the
// same import get one import. Different insertions at one offset are both made,
// x's first. Anything else that overlaps is a conflict; then the result is nil
// and neither list may be half applied. Going together is a claim about text
// only: Merge cannot know whether two repairs make sense side by side.
func Merge(x, y []Edit) ([]Edit, bool) {
	out := slices.Clone(x)
	for _, e := range y {
		if !slices.Contains(x, e) {
			out = append(out, e)
		}
	}
	Sort(out)
	for i := 1; i < len(out); i++ {
		if out[i].Start < out[i-1].End {
			return nil, false
		}
	}
	return out, true
}
