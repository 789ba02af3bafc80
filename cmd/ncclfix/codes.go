package main

import (
	"errors"
	"fmt"
	"strings"

	"ncclfix/patchers"
)

// byDefault is the name of all codes that are reported unless ignored.
const byDefault = "default"

// selectCodes returns the codes that are selected and not ignored. Names are
// codes, prefixes such as "teardown", and "default". The more exact name counts:
// teardown/worker outranks teardown, which outranks default. Between equals,
// ignoring wins.
func selectCodes(all []patchers.Code, selected, ignored []string) ([]patchers.Code, error) {
	if len(selected) == 0 {
		return nil, errors.New("no codes are selected")
	}
	for _, list := range [][]string{selected, ignored} {
		for _, name := range list {
			if err := checkName(all, name); err != nil {
				return nil, err
			}
		}
	}
	var out []patchers.Code
	for _, c := range all {
		if rank(c, selected) > rank(c, ignored) {
			out = append(out, c)
		}
	}
	return out, nil
}

// rank returns how exactly the names name the code: 0 is not at all.
func rank(c patchers.Code, names []string) int {
	best := 0
	for _, name := range names {
		switch {
		case name == c.ID:
			best = max(best, 3)
		case strings.HasPrefix(c.ID, name+"/"):
			best = max(best, 2)
		case name == byDefault && c.Default:
			best = max(best, 1)
		}
	}
	return best
}

// checkName returns an error if name names no code.
func checkName(all []patchers.Code, name string) error {
	words := []string{byDefault}
	for _, c := range all {
		prefix, _, _ := strings.Cut(c.ID, "/")
		words = append(words, c.ID, prefix)
	}
	for _, w := range words {
		if w == name {
			return nil
		}
	}
	return fmt.Errorf("unknown code %q%s", name, didYouMean(name, words))
}
