package teardown

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"ncclfix/patchers"
)

// Summaries that are brought up to date file by file are those that are computed from
// nothing when all is parsed.
func TestSummariesUpToDate(t *testing.T) {
	names, err := filepath.Glob("../../testdata/script/teardown-*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(name), func(t *testing.T) { checkSummaries(t, txtar.Parse(data).Files) })
	}
	// What finish does changes when the last file has been read, and so does what main
	// does, though main calls what it called before.
	t.Run("far", func(t *testing.T) {
		checkSummaries(t, txtar.Parse([]byte(`
-- main.py --
import torch.distributed as dist
from lib import finish
def main():
    dist.init_process_group()
    finish()
-- lib.py --
from middle import done
def finish():
    done()
-- middle.py --
import torch.distributed as dist
from last import end
def done(first=False):
    if first:
        dist.init_process_group()
    end()
-- last.py --
import torch.distributed as dist
def end():
    dist.destroy_process_group()
`)).Files)
	})
}

func checkSummaries(t *testing.T, files []txtar.File) {
	texts := map[string]string{}
	for _, f := range files {
		if !strings.HasPrefix(f.Name, "want/") {
			texts[f.Name] = string(f.Data)
		}
	}
	whole, err := scanTree(&patchers.Pass{Context: context.Background(), Tree: treeOf(texts), Report: func(patchers.Finding) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.close()
	var part []int
	for i := range whole.sources {
		part = append(part, i)
	}
	a := whole.analysis(part)
	if err := a.parse(); err != nil {
		t.Fatal(err)
	}
	type summary struct {
		after                      [numStates]state
		opens, closes, opensInside bool
	}
	summaries := func() []summary {
		var out []summary
		for _, f := range a.all {
			out = append(out, summary{f.after, f.opening != nil, f.closes, f.opensInside})
		}
		return out
	}
	before := summaries()
	a.prog.forgetGuess()
	for _, f := range a.all {
		f.changed = true
	}
	a.prog.summarize(a.all)
	a.prog.guess(findClosers(a.all))
	for i, now := range summaries() {
		if f := a.all[i]; before[i] != now {
			t.Errorf("%s in %s: was %v, is %v", f.qualname(), f.mod.path, before[i], now)
		}
	}
}
