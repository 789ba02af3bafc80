package rebuild

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Text shows the plan to a person, but for the diff of the patch. What it says of
// files, variables and arguments is other people's text.
func (p *Plan) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "checkout: %s\n", p.Checkout)
	if s := p.Source; s != nil {
		fmt.Fprintf(&b, "NVSHMEM: %s in %s (%s)\n", s.Version, s.Dir, s.Found)
		if s.Archive != "" {
			fmt.Fprintf(&b, "  unpacked from %s\n", s.Archive)
		}
	}
	if p.Patch != nil {
		p.Patch.text(&b)
	}
	for i, s := range p.Steps {
		fmt.Fprintf(&b, "\nstep %d, %s: %s\n  in %s\n", i+1, s.Name, s.Does, s.Dir)
		for _, v := range s.Set {
			fmt.Fprintf(&b, "    %s=%s\n", v.Name, quote(v.Value))
		}
		for _, path := range s.Removes {
			fmt.Fprintf(&b, "    removes %s\n", path)
		}
		if s.Argv != nil {
			fmt.Fprintf(&b, "    %s\n", commandLine(s.Argv))
		}
		fmt.Fprintf(&b, "  makes %s\n", s.Product)
	}
	files := make([]string, 0, len(p.Files))
	for file := range p.Files {
		files = append(files, file)
	}
	slices.Sort(files)
	for _, file := range files {
		fmt.Fprintf(&b, "\n%s:\n", file)
		for line := range strings.Lines(p.Files[file]) {
			b.WriteString("    " + line)
		}
	}
	if len(p.Steps) > 0 {
		fmt.Fprintf(&b, "\nhanded on from the environment: %s\n", strings.Join(p.Inherited, " "))
		if len(p.Withheld) > 0 {
			fmt.Fprintf(&b, "not handed on, without --keep-env: %s\n", strings.Join(p.Withheld, " "))
		}
		fmt.Fprintf(&b, "logs: %s\n", filepath.Join(p.State, "logs"))
	}
	for _, t := range p.Traps {
		in := "in the way"
		if t.Despite {
			in = "gone into by --despite"
		}
		fmt.Fprintf(&b, "\n%s [%s]: %s\n  way on: %s\n", in, t.Code, t.Message, t.Way)
	}
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "\nnote: %s\n", n)
	}
	return b.String()
}

func (p *Patch) text(b *strings.Builder) {
	fmt.Fprintf(b, "patch: %s %s\n", p.Path, p.Verdict)
	for i, c := range p.Commits {
		in := ""
		if c.In {
			in = " (in the source already)"
		}
		fmt.Fprintf(b, "  commit %d: %s%s\n", i+1, c.Subject, in)
	}
	for _, o := range p.Offsets {
		by, way := o.By, "down"
		if by < 0 {
			by, way = -by, "up"
		}
		fmt.Fprintf(b, "  commit %d, hunk %d of %s fits at line %d, %s further %s\n", o.Commit, o.Hunk, o.Path, o.Line, count(by, "line"), way)
	}
}

var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// quote makes one word of s for a shell.
func quote(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func commandLine(argv []string) string {
	var words []string
	for _, arg := range argv {
		words = append(words, quote(arg))
	}
	return strings.Join(words, " ")
}
