package pysyntax

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	var names names
	for range 2 {
		names.reset()
		for i := range 5000 {
			number, isNew := names.add(fmt.Appendf(nil, "name%d", i))
			if int(number) != i+1 || !isNew {
				t.Fatalf("name%d: number %d, new %t", i, number, isNew)
			}
		}
		for i := range 5000 {
			word := fmt.Appendf(nil, "name%d", i)
			if number, isNew := names.add(word); int(number) != i+1 || isNew {
				t.Fatalf("name%d, again: number %d, new %t", i, number, isNew)
			}
			if number, _, _ := names.find(word); int(number) != i+1 {
				t.Fatalf("name%d: found as %d", i, number)
			}
		}
		if number, _, _ := names.find([]byte("other")); number != 0 {
			t.Fatalf("found a name that was not added, as %d", number)
		}
	}
}

// A parse ends when its context is cancelled, and the next one is not the worse for it.
func TestParseCancelled(t *testing.T) {
	p := NewParser()
	defer p.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	long := []byte(strings.Repeat("x = f(a, b)[c]\n", MaxSize/20))
	if _, err := p.Parse(ctx, long); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled parse: %v", err)
	}
	if err := p.Check(ctx, []byte(strings.Repeat("x = f(a if b else c)\ny = (i for i in g)\n", MaxSize/50))); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled check: %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	for range 100 {
		if f, err := p.Parse(ctx, []byte("x = 1\n")); err != nil || len(f.Body) != 1 {
			t.Fatalf("behind a cancelled parse: %v, %v", f, err)
		}
	}
	for _, text := range []string{"", "\n", "# nothing\n"} {
		if f, err := p.Parse(ctx, []byte(text)); err != nil || len(f.Body) != 0 {
			t.Errorf("%q: %v, %v", text, f, err)
		}
	}
}
