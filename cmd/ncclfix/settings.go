package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/bmatcuk/doublestar/v4"
)

// Settings say what is reported of a tree, and how it is repaired.
type settings struct {
	Select  []string `toml:"select"`  // codes, prefixes or "default"
	Ignore  []string `toml:"ignore"`  // the same
	Include []string `toml:"include"` // globs; empty is every file
	Exclude []string `toml:"exclude"` // globs
	Barrier bool     `toml:"barrier"` // see patchers.Options

	source string // the file that they stand in; "" for none
}

// readSettings returns the settings at the top of a tree: those of ncclfix.toml,
// or of [tool.ncclfix] in pyproject.toml if there is no such file. An unknown key
// is an error, so that a misspelt one does not go unnoticed.
func readSettings(read func(name string) ([]byte, error)) (settings, error) {
	s := settings{Select: []string{byDefault}}
	for _, name := range []string{"ncclfix.toml", "pyproject.toml"} {
		data, err := read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = s.decode(name, string(data))
		}
		if err != nil {
			return s, fmt.Errorf("reading %s: %w", name, cause(err))
		}
		break
	}
	return s, nil
}

// decode puts what a file says over s.
func (s *settings) decode(name, data string) error {
	var project struct {
		Tool struct {
			Ncclfix settings `toml:"ncclfix"`
		} `toml:"tool"`
	}
	var table toml.Key
	var into any = s
	if name == "pyproject.toml" {
		project.Tool.Ncclfix = *s
		table, into = toml.Key{"tool", "ncclfix"}, &project
	}
	md, err := toml.Decode(data, into)
	if err != nil {
		return tomlError(err)
	}
	if table != nil {
		*s = project.Tool.Ncclfix
	}
	if table == nil || md.IsDefined(table...) {
		s.source = name
	}
	for _, key := range md.Undecoded() {
		if len(key) > len(table) && slices.Equal(key[:len(table)], table) {
			return fmt.Errorf("unknown key %q%s", key.String(), didYouMean(key[len(table)], []string{"select", "ignore", "include", "exclude", "barrier"}))
		}
	}
	for _, glob := range slices.Concat(s.Include, s.Exclude) {
		if !doublestar.ValidatePattern(glob) {
			return fmt.Errorf("malformed glob %q", glob)
		}
	}
	return nil
}

// tomlError says on one line, and with the place if there is one, what is wrong
// with a file.
func tomlError(err error) error {
	if perr := (toml.ParseError{}); errors.As(err, &perr) {
		return fmt.Errorf("line %d:%d: %s", perr.Position.Line, perr.Position.Col, perr.Message)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "toml: "))
}

// covers reports whether findings in the file are wanted.
func (s *settings) covers(file string) bool {
	return (len(s.Include) == 0 || matchesAny(s.Include, file)) && !matchesAny(s.Exclude, file)
}

// matchesAny reports whether a glob matches the file or a folder that it is in.
// Globs are relative to the top of the tree; ** stands for any number of folders.
func matchesAny(globs []string, file string) bool {
	for _, glob := range globs {
		glob = strings.TrimSuffix(glob, "/")
		for p := file; p != "."; p = path.Dir(p) {
			if doublestar.MatchUnvalidated(glob, p) {
				return true
			}
		}
	}
	return false
}

// write prints the settings as ncclfix.toml would hold them.
func (s *settings) write(w io.Writer) error {
	e := toml.NewEncoder(w)
	for _, list := range []*[]string{&s.Select, &s.Ignore, &s.Include, &s.Exclude} {
		if *list == nil {
			*list = []string{}
		}
	}
	return e.Encode(s)
}
