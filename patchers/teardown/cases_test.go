package teardown

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/tools/txtar"

	"ncclfix/patchers"
)

// TestCases runs the cases of testdata/script that are about the teardown alone:
// the repair of the files is what stands under want/, other files stay as they
// are, the findings are those listed, and a second run changes nothing.
func TestCases(t *testing.T) {
	names, err := filepath.Glob("../../testdata/script/teardown-*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files, want := map[string]string{}, map[string]string{}
			var findings []string
			listed := false
			archive := txtar.Parse(data)
			for _, f := range archive.Files {
				switch name, ok := strings.CutPrefix(f.Name, "want/"); {
				case ok:
					want[name] = string(f.Data)
				case f.Name == "findings":
					listed = true
					findings = strings.Fields(strings.ReplaceAll(string(f.Data), " ", "\x00"))
				default:
					files[f.Name] = string(f.Data)
				}
			}
			prepare(t, string(archive.Comment), files, want)
			set, _ := plan(t, files)
			var got []string
			for _, r := range set.Results {
				if !r.Suppressed {
					got = append(got, r.Pos.Path+"\x00"+r.Code)
				}
			}
			slices.Sort(got)
			slices.Sort(findings)
			if d := cmp.Diff(findings, got, cmpopts.EquateEmpty()); d != "" && (listed || len(want) == 0) {
				t.Errorf("findings (-want +got):\n%s\n%s", d, explain(set))
			}
			for _, c := range set.Files {
				if want[c.Path] == "" {
					want[c.Path] = files[c.Path]
				}
				files[c.Path] = string(c.New)
			}
			for path, text := range want {
				if d := cmp.Diff(text, files[path]); d != "" {
					t.Errorf("%s (-want +got):\n%s", path, d)
				}
			}
			again, _ := plan(t, files)
			for _, c := range again.Files {
				t.Errorf("a second run changes %s:\n%s", c.Path, c.New)
			}
		})
	}
}

// prepare carries out the lines of a script in front of its check, as testscript
// would: they make files that an archive cannot hold.
func prepare(t *testing.T, script string, files, want map[string]string) {
	for line := range strings.Lines(script) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "repairs" || strings.HasPrefix(words[0], "#") {
			continue
		}
		change := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
		paths := words[1:]
		switch {
		case words[0] == "unix2dos":
		case strings.HasPrefix(line, "exec truncate -s -1 "):
			change = func(s string) string { return s[:len(s)-1] }
			paths = words[4:]
		default:
			t.Fatalf("unknown line: %s", line)
		}
		for _, p := range paths {
			if name, ok := strings.CutPrefix(p, "want/"); ok {
				want[name] = change(want[name])
			} else {
				files[p] = change(files[p])
			}
		}
	}
}

func explain(set *patchers.ChangeSet) string {
	var b strings.Builder
	for _, r := range set.Results {
		fmt.Fprintf(&b, "%s: %s [%s] %s %s\n", r.Pos, r.Message, r.Code, r.Outcome, r.Reason)
		for _, s := range r.Why {
			fmt.Fprintf(&b, "    %s: %s\n", s.Pos, s.Message)
		}
	}
	return b.String()
}
