package pyproject

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"unicode/utf8"

	"ncclfix/patchers/diff"
	"ncclfix/patchers/pysyntax"
)

// configNames are the files that pytest looks for in a folder; the first one that
// has settings for it rules. The first two are read since pytest 9.
func configNames() []string {
	return []string{"pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"}
}

// A syntaxError is a place where a file is not what its name says.
type syntaxError struct {
	line, column int
	message      string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%d:%d: %s", e.line, e.column, e.message) }

// A config is a file that can have settings of pytest.
type config struct {
	path   string
	src    []byte
	tree   map[string]any // what the file says, of sections and tables by name
	table  []string       // where pytest's settings are, or would be
	native bool           // pytest takes TOML's types as they are: addopts is a list
	rules  bool           // pytest takes its settings from this file, unless another comes first
	refuse string         // why the file is left alone, or ""
	places places
}

// Places is what can be done to the bytes of a configuration file. All settings
// are those of one table.
type places interface {
	place(table []string, name string) (offset int, found bool)
	add(table []string, name string, value []string, list bool) []diff.Edit
	set(table []string, name, value string) []diff.Edit
	extend(table []string, name, option string) [][]diff.Edit
}

// readConfig reads a file that has one of the configNames. A *syntaxError says
// that pytest cannot read it.
func readConfig(name string, src []byte) (*config, error) {
	for offset := 0; !utf8.Valid(src); {
		r, n := utf8.DecodeRune(src[offset:])
		if r == utf8.RuneError && n == 1 {
			line, column := pysyntax.Position(src, offset)
			return nil, &syntaxError{line, column, "not UTF-8"}
		}
		offset += n
	}
	c := &config{path: name, src: src, table: []string{"pytest"}}
	read := c.readINI
	if path.Ext(name) == ".toml" {
		read = c.readTOML
	}
	if err := read(); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *config) readTOML() error {
	tree, file, err := parseTOML(c.src)
	if err != nil {
		return err
	}
	c.tree, c.places = tree, file
	if path.Base(c.path) == "pyproject.toml" {
		c.judgePyproject()
	} else {
		c.native, c.rules = true, true
	}
	return nil
}

func (c *config) readINI() error {
	tree, file, err := parseINI(c.src)
	if err != nil {
		return err
	}
	c.tree, c.places = tree, file
	switch path.Base(c.path) {
	case "pytest.ini", ".pytest.ini":
		c.rules = true
	case "setup.cfg":
		c.table = []string{"tool:pytest"}
		if _, c.rules = c.settings(); !c.rules && tree["pytest"] != nil {
			offset, _ := file.place([]string{"pytest"}, "")
			line, column := pysyntax.Position(c.src, offset)
			return &syntaxError{line, column, "pytest refuses [pytest] in setup.cfg; the section is [tool:pytest]"}
		}
	default:
		_, c.rules = c.settings()
	}
	if hasOddBreaks(c.src) {
		c.refuse = "it has line breaks that parsers do not agree on"
	}
	return nil
}

// judgePyproject says which table of pyproject.toml pytest reads: since pytest 9,
// [tool.pytest] if it has settings of its own.
func (c *config) judgePyproject() {
	native, _ := lookup(c.tree, []string{"tool", "pytest"})
	own := maps.Clone(native)
	delete(own, "ini_options")
	c.table = []string{"tool", "pytest", "ini_options"}
	old, found := c.settings()
	switch {
	case len(own) > 0 && len(old) > 0:
		c.rules, c.refuse = true, "it has both [tool.pytest] and [tool.pytest.ini_options], which pytest 9 refuses"
	case len(own) > 0:
		c.table, c.native, c.rules = c.table[:2], true, true
	default:
		c.rules = found
	}
}

// settings returns pytest's settings, and whether there is a table for them.
func (c *config) settings() (map[string]any, bool) { return lookup(c.tree, c.table) }

// position returns where a setting stands, or the table that lacks it, or the
// file.
func (c *config) position(name string) (line, column int) {
	offset, ok := c.places.place(c.table, name)
	if !ok {
		return 0, 0
	}
	return pysyntax.Position(c.src, offset)
}

// args returns addopts as pytest splits it.
func (c *config) args() ([]string, error) {
	settings, _ := c.settings()
	return splitAddopts(settings["addopts"], c.native)
}

func splitAddopts(value any, native bool) ([]string, error) {
	switch v := value.(type) {
	case nil:
		return nil, nil
	case string:
		if native {
			return nil, errors.New("pytest wants a list of strings here")
		}
		return split(v)
	case []any:
		args := make([]string, len(v))
		for i, item := range v {
			arg, ok := item.(string)
			if !ok {
				return nil, errors.New("not all items are strings")
			}
			args[i] = arg
		}
		return args, nil
	}
	return nil, errors.New("neither a string nor a list of strings")
}

// withOption returns the edits that add an option to addopts. The error says why
// there are none.
func (c *config) withOption(option string) ([]diff.Edit, error) {
	settings, _ := c.settings()
	if _, ok := settings["addopts"]; !ok {
		edits := c.places.add(c.table, "addopts", []string{option}, c.native)
		return edits, c.verify(edits)
	}
	err := errors.New("there is no way to write it")
	for _, edits := range c.places.extend(c.table, "addopts", option) {
		if err = c.verify(edits); err == nil {
			return edits, nil
		}
	}
	return nil, err
}

// withVersion returns the edits that set minversion. The error says why there are
// none.
func (c *config) withVersion(version string) ([]diff.Edit, error) {
	settings, _ := c.settings()
	edits := []diff.Edit(nil)
	if _, ok := settings["minversion"]; ok {
		edits = c.places.set(c.table, "minversion", version)
	} else {
		edits = c.places.add(c.table, "minversion", []string{version}, false)
	}
	return edits, c.verify(edits)
}

// verify returns why edits of c must not be made.
func (c *config) verify(edits []diff.Edit) error {
	after, err := diff.Apply(c.src, edits)
	if err != nil {
		return err
	}
	return verify(c.path, c.src, after)
}

// verify judges a file that fixes made of old: it must say the same as before, but
// that pytest's addopts may have one more option and its minversion be minVersion.
func verify(name string, old, new []byte) error {
	before, err := readConfig(name, old)
	if err != nil {
		return err
	}
	expected, err := ensure(before.tree, before.table)
	if err != nil {
		return err
	}
	after, err := readConfig(name, new)
	if err != nil {
		return err
	}
	if !slices.Equal(before.table, after.table) {
		return errors.New("pytest would read another table")
	}
	settings, _ := after.settings()
	addopts := expected["addopts"]
	if v, ok := settings["addopts"]; ok {
		expected["addopts"] = v
	}
	if settings["minversion"] == minVersion {
		expected["minversion"] = minVersion
	}
	if !reflect.DeepEqual(before.tree, after.tree) {
		return errors.New("other settings would change")
	}
	if reflect.DeepEqual(addopts, settings["addopts"]) {
		return nil
	}
	oldArgs, err := splitAddopts(addopts, before.native)
	if err != nil {
		return err
	}
	newArgs, err := after.args()
	if err != nil {
		return err
	}
	if !extends(oldArgs, newArgs, setupShow) {
		return fmt.Errorf("the options of pytest would become %q", newArgs)
	}
	return nil
}

// lookup returns the table at path, and whether there is one.
func lookup(tree map[string]any, path []string) (map[string]any, bool) {
	for _, key := range path {
		next, ok := tree[key].(map[string]any)
		if !ok {
			return nil, false
		}
		tree = next
	}
	return tree, true
}

// ensure returns the table at path, which it makes if it is missing. The error
// says what else is there.
func ensure(tree map[string]any, path []string) (map[string]any, error) {
	for _, key := range path {
		if tree[key] == nil {
			tree[key] = map[string]any{}
		}
		next, ok := tree[key].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s is no table", key)
		}
		tree = next
	}
	return tree, nil
}
