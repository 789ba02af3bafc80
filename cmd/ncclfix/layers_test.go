package main

import (
	"os/exec"
	"strings"
	"testing"
)

// What only reads and edits cannot run code of a checkout: all that does is below
// rebuild.
func TestLayers(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "ncclfix/patchers/...", "ncclfix/cmd/internal/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if len(deps) < 100 {
		t.Fatalf("%d dependencies; the list is not complete", len(deps))
	}
	for _, dep := range deps {
		if strings.HasPrefix(dep, "ncclfix/rebuild") {
			t.Errorf("patchers or cmd/internal depends on %s", dep)
		}
	}
}
