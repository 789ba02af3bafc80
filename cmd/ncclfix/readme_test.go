package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const readme = "../../README.md"

// The README's table of codes is made of what explain prints.
func TestReadmeCodes(t *testing.T) {
	data, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), "writes this table -->\n")
	_, after, ok2 := strings.Cut(rest, "<!-- end -->\n")
	if !ok || !ok2 {
		t.Fatal("the README has no place for the table of codes")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%swrites this table -->\n\n| code | means | reported | repaired |\n| --- | --- | --- | --- |\n", before)
	for _, c := range newApp().codes() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.ID, c.Summary, reported(c), repaired(c))
	}
	fmt.Fprintf(&b, "\n<!-- end -->\n%s", after)
	if *update {
		if err := os.WriteFile(readme, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(b.String(), string(data)); d != "" {
		t.Errorf("README (-want +got):\n%s", d)
	}
}

// The README's first example is what the command prints.
func TestReadmeDiff(t *testing.T) {
	data, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "```diff\n")
	example, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("the README has no diff")
	}
	cmd := exec.Command("ncclfix", "diff", "testdata/trees/deepep-2025-06")
	cmd.Dir = "../.."
	got, _ := cmd.Output() // the status is 1: something is shown
	if !strings.Contains(string(got), example) {
		t.Errorf("the README's diff is not part of what is printed:\n%s", got)
	}
}

// The examples of workflows in the README are files, which are checked.
func TestReadmeWorkflows(t *testing.T) {
	data, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../testdata/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no workflows: %v", err)
	}
	text := string(data)
	for _, file := range files {
		example, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		mark := "<!-- testdata/workflows/" + filepath.Base(file) + " -->\n```yaml\n"
		before, rest, ok := strings.Cut(text, mark)
		_, after, ok2 := strings.Cut(rest, "```\n")
		if !ok || !ok2 {
			t.Errorf("the README has no place for %s", file)
			continue
		}
		text = before + mark + string(example) + "```\n" + after
	}
	if *update {
		if err := os.WriteFile(readme, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(text, string(data)); d != "" {
		t.Errorf("README (-want +got):\n%s", d)
	}
}

// The workflows, and the action that they use, are what GitHub takes.
func TestActionlint(t *testing.T) {
	actionlint, err := exec.LookPath("actionlint")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("no actionlint: go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.12")
	}
	dir := t.TempDir()
	runGit(t, dir, "init", "-q")
	action, err := os.ReadFile("../../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	// The action is used as one of the same repository, so that its inputs are known.
	writeFiles(t, dir, map[string]string{"action.yml": string(action)})
	for _, name := range []string{"pull-request", "schedule", "fork-read", "fork-write"} {
		data, err := os.ReadFile("../../testdata/workflows/" + name + ".yml")
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(data), "OWNER/ncclfix@REVISION # a full commit", "./", 1)
		writeFiles(t, dir, map[string]string{".github/workflows/" + name + ".yml": text})
	}
	cmd := exec.Command(actionlint, "-no-color")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
