package pyproject

import (
	"bytes"
	"fmt"
	"strings"

	"ncclfix/patchers/diff"
	"ncclfix/patchers/pysyntax"
)

// parseINI returns what src says to iniconfig, the parser that pytest reads
// pytest.ini, tox.ini and setup.cfg with, and where it says it. It has no
// interpolation, no inline comments in values, and no indented keys.
func parseINI(src []byte) (map[string]any, *iniFile, error) {
	f := &iniFile{src: src}
	tree := map[string]any{}
	number := 0
	for at := len(bom(src)); at < len(src); {
		next := len(src)
		if n := bytes.IndexByte(src[at:], '\n'); n >= 0 {
			next = at + n + 1
		}
		number++
		if err := f.line(at, pysyntax.LineEnd(src, at), tree); err != nil {
			return nil, nil, &syntaxError{number, 1, err.Error()}
		}
		at = next
	}
	for _, s := range f.settings {
		var lines []string
		for _, v := range s.values {
			lines = append(lines, string(src[v.Start:v.End]))
		}
		tree[s.section].(map[string]any)[s.name] = strings.Join(lines, "\n")
	}
	return tree, f, nil
}

// hasOddBreaks reports whether src has characters that some versions of iniconfig
// take for the end of a line, and others do not.
func hasOddBreaks(src []byte) bool {
	return bytes.ContainsAny(src, "\v\f\x1c\x1d\x1e\u0085\u2028\u2029") ||
		bytes.Count(src, []byte("\r")) != bytes.Count(src, []byte("\r\n"))
}

// An iniFile has the places of the sections and settings of an INI file.
type iniFile struct {
	src      []byte
	sections []iniSection
	settings []*iniSetting
}

type iniSection struct {
	name       string
	start, end int
}

// An iniSetting is a key with its value, which may go on for several lines.
type iniSetting struct {
	section, name string
	start, end    int             // of the key with the = or : behind it
	values        []pysyntax.Span // by line, without space around; empty ones are left out
}

// line reads the line [start, end). It adds sections to tree.
func (f *iniFile) line(start, end int, tree map[string]any) error {
	text := strings.TrimRight(string(f.src[start:end]), " \t")
	bare := strings.TrimLeft(text, " \t")
	value := pysyntax.Span{Start: start + len(text) - len(bare), End: start + len(text)}
	switch {
	case bare == "" || bare[0] == '#' || bare[0] == ';':
		return nil
	case text[0] == '[':
		header, _, _ := strings.Cut(text, "#")
		header, _, _ = strings.Cut(header, ";")
		if header = strings.TrimRight(header, " \t"); strings.HasSuffix(header, "]") {
			name := header[1 : len(header)-1]
			if name == "" {
				return fmt.Errorf("empty section name")
			}
			if tree[name] != nil {
				return fmt.Errorf("duplicate section %q", name)
			}
			tree[name] = map[string]any{}
			f.sections = append(f.sections, iniSection{name, start, end})
			return nil
		}
	case len(bare) == len(text):
		name, _, ok := strings.Cut(text, "=")
		if !ok || strings.Contains(name, ":") {
			if name, _, ok = strings.Cut(text, ":"); !ok {
				return fmt.Errorf("unexpected line %q", text)
			}
		}
		if len(f.sections) == 0 {
			return fmt.Errorf("no section header above %q", text)
		}
		s := &iniSetting{section: f.sections[len(f.sections)-1].name, name: strings.TrimSpace(name), start: start, end: start + len(name) + 1}
		if f.find([]string{s.section}, s.name) != nil {
			return fmt.Errorf("duplicate name %q", s.name)
		}
		f.settings = append(f.settings, s)
		value.Start = s.end
		for value.Start < value.End && (f.src[value.Start] == ' ' || f.src[value.Start] == '\t') {
			value.Start++
		}
		if value.Start < value.End {
			s.values = append(s.values, value)
		}
		return nil
	}
	// The line goes on with a value.
	if len(f.settings) == 0 || f.settings[len(f.settings)-1].start < f.sections[len(f.sections)-1].start {
		return fmt.Errorf("unexpected continuation %q", bare)
	}
	last := f.settings[len(f.settings)-1]
	last.values = append(last.values, value)
	return nil
}

func (f *iniFile) find(table []string, name string) *iniSetting {
	for _, s := range f.settings {
		if s.section == table[0] && s.name == name {
			return s
		}
	}
	return nil
}

// place returns where a setting stands, or else the section that would have it.
func (f *iniFile) place(table []string, name string) (offset int, found bool) {
	if s := f.find(table, name); s != nil {
		return s.start, true
	}
	for _, s := range f.sections {
		if s.name == table[0] {
			return s.start, true
		}
	}
	return 0, false
}

// add adds a setting that the section lacks, and the section if there is none. It
// goes below the header: where another setting ends, an edit may make that longer.
func (f *iniFile) add(table []string, name string, value []string, _ bool) []diff.Edit {
	line := name + " = " + strings.Join(value, " ")
	for _, s := range f.sections {
		if s.name == table[0] {
			return []diff.Edit{insertLine(f.src, s.end, line)}
		}
	}
	return appendSection(f.src, "["+table[0]+"]", line)
}

// set replaces the value of a setting that is there.
func (f *iniFile) set(table []string, name, value string) []diff.Edit {
	s := f.find(table, name)
	if len(s.values) == 0 {
		return []diff.Edit{diff.Insert(s.end, " "+value)}
	}
	return []diff.Edit{{Start: s.values[0].Start, End: s.values[len(s.values)-1].End, New: value}}
}

// extend returns ways to add an option to a setting that is there, the most
// natural one first. Which of them do so must be found out.
func (f *iniFile) extend(table []string, name, option string) [][]diff.Edit {
	s := f.find(table, name)
	if len(s.values) == 0 {
		return [][]diff.Edit{{diff.Insert(s.end, " "+option)}}
	}
	first, last := s.values[0], s.values[len(s.values)-1]
	front := []diff.Edit{diff.Insert(first.Start, option+" ")}
	if start := pysyntax.LineStart(f.src, last.Start); start > s.start {
		indent := string(f.src[start:last.Start])
		return [][]diff.Edit{{insertLine(f.src, last.End, indent+option)}, front}
	}
	return [][]diff.Edit{{diff.Insert(last.End, " "+option)}, front}
}
