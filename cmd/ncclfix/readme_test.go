package main

import (
	"fmt"
	"os"
	"os/exec"
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
