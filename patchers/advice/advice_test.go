package advice

import (
	"context"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"ncclfix/patchers"
)

// findings returns what is found in a file, a line each: its line and column, its
// code, and for a handle which one; and the messages of all.
func findings(t testing.TB, name, src string) []patchers.Finding {
	t.Helper()
	tree := patchers.Tree{FS: fstest.MapFS{name: {Data: []byte(src)}}, Files: []string{name}}
	found, err := patchers.Analyze(context.Background(), tree, patchers.Options{}, []*patchers.Patcher{Patcher})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// shown returns the places and codes of the findings of one code.
func shown(t testing.TB, src, code string) string {
	t.Helper()
	var out []string
	for _, f := range findings(t, "a.py", src) {
		if f.Fix != nil {
			t.Errorf("%s has a fix", f.Pos)
		}
		if f.Code == code && !f.Suppressed {
			out = append(out, strings.TrimPrefix(f.Pos.String(), "a.py:"))
		}
	}
	return strings.Join(out, " ")
}

func TestAsync(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"all calls", `import deep_ep
b = deep_ep.Buffer(group, 1)
b.dispatch(x, handle)
b.combine(x, handle)
b.internode_dispatch(x, handle)
b.internode_combine(x, handle)
b.low_latency_dispatch(x, idx, 1, 2)
b.low_latency_combine(x, idx, w, handle, return_recv_hook=False)
b.get_dispatch_layout(idx, 8)
b.capture()
`, "3:1 4:1 5:1 6:1 7:1 8:1"},
		{"right", `import deep_ep
b = deep_ep.Buffer(group, 1)
b.dispatch(x, handle, async_finish=True)
b.combine(x, handle, async_finish=overlap)
b.low_latency_dispatch(x, idx, 1, 2, async_finish=True)
b.low_latency_dispatch(x, idx, 1, 2, async_finish=False, return_recv_hook=True)
b.low_latency_combine(x, idx, w, handle, return_recv_hook=hook)
`, ""},
		{"set to False", "from deep_ep import Buffer as B\nb = B(g)\ny, _, event = \\\n    b.combine(x, handle, async_finish=False)\n", "4:5"},
		{"arguments not seen", `import deep_ep
b = deep_ep.Buffer(group, 1)
b.dispatch(**args)
b.dispatch(*args)
b.combine(x, h, w, None, None, True)
b.dispatch(x, None, a, b, c, d, e, f, 1, None, None, True)
b.low_latency_dispatch(x, idx, 1, 2, True)
b.combine(*args, async_finish=False)
`, "8:1"},
		{"parameters", `import deep_ep as ep
from typing import Optional
def f(buffer: ep.Buffer): buffer.combine(x, h)
def f(buffer: "ep.Buffer"): buffer.combine(x, h)
def f(a, *, buffer: Optional[ep.Buffer] = None, c=0): buffer.combine(x, h)
def f(buffer: typing.Optional["ep.Buffer"]): buffer.combine(x, h)
def f(buffer: 'ep.Buffer | None'): buffer.combine(x, h)
def f(buffer): buffer.combine(x, h)
def f(buffer: ep.ElasticBuffer): buffer.combine(x, h)
def f(buffer: list[ep.Buffer]): buffer.combine(x, h)
def f(buffer: Buffer): buffer.combine(x, h)
`, "3:27 4:29 5:55 6:46 7:36"},
		{"a global", `from deep_ep import Buffer
_buffer: Optional[Buffer] = None
_other = None
def init():
    global _other, _third
    _other = Buffer(group)
    _third = Buffer(group)
def f():
    _buffer.combine(x, h)
    _other.combine(x, h)
    _third.combine(x, h)
def g(_buffer):
    _buffer.combine(x, h)
`, "9:5 10:5 11:5"},
		{"bound to something else too", `import deep_ep
b = deep_ep.Buffer(g)
if cpu:
    b = Fake()
b.combine(x, h)
for c in bs:
    c = deep_ep.Buffer(g)
    c.combine(x, h)
d, e = deep_ep.Buffer(g), 1
d.combine(x, h)
`, ""},
		{"another's Buffer", "from mine import Buffer\nimport deep_ep\nb = Buffer(g)\nb.combine(x, h)\n", ""},
		{"whichever is there", "try:\n    from deep_ep import Buffer\nexcept ImportError:\n    from mori import Buffer\nb = Buffer(g)\nb.combine(x, h)\n", ""},
		{"perhaps absent", "try:\n    from deep_ep import Buffer\nexcept ImportError:\n    Buffer = None\nb = Buffer(g)\nb.combine(x, h)\n", "6:1"},
		{"imported in a function", "def f():\n    import deep_ep.buffers.legacy\n    b = deep_ep.buffers.legacy.Buffer(g)\n    b.combine(x, h)\ndef g():\n    b.combine(x, h)\n", "4:5"},
		{"a class's names are not its methods'", "import deep_ep\nclass C:\n    b = deep_ep.Buffer(g)\n    b.combine(x, h)\n    def f(self):\n        b.combine(x, h)\n", "4:5"},
		{"the enclosing function's", "import deep_ep\ndef f():\n    def g():\n        nonlocal b\n        b = deep_ep.Buffer(g)\n    b = None\n    bench(lambda: b.combine(x, h))\n    bench(lambda b: b.combine(x, h))\n", "7:19"},
		{"in a loop, once", "import deep_ep\nb = deep_ep.Buffer(g)\nfor i in r:\n    while i:\n        if b.combine(x, h): pass\n        elif b.combine(y, h): pass\n", "5:12 6:14"},
		{"silenced", "import deep_ep\nb = deep_ep.Buffer(g)\nb.combine(x, h)  # ncclfix: ignore[advice/async]\n# ncclfix: ignore[advice]\nb.combine(x, h)\n", ""},
		{"not Python", "import deep_ep\nb = deep_ep.Buffer(g)\nb.combine(x\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := shown(t, c.src, async); got != c.want {
				t.Errorf("found at %q, want %q", got, c.want)
			}
		})
	}
}

// TestHandle looks at what follows a first dispatch in line 4 with the layout of
// topk_idx.
func TestHandle(t *testing.T) {
	const first = `def f(buffer: "deep_ep.Buffer", x, y, topk_idx, w, mask, cond):
    import deep_ep
    per_rank, rdma, per_expert, mask, _ = buffer.get_dispatch_layout(topk_idx, 8)
    rx, ri, rw, counts, handle, event = buffer.dispatch(x, None, per_rank, rdma, mask, per_expert, topk_idx, w)
`
	const again = "buffer.dispatch(y, num_tokens_per_rank=per_rank, is_token_in_rank=mask)"
	const layout = "_, _, _, mask, _ = buffer.get_dispatch_layout(topk_idx=topk_idx, num_experts=8)"
	for _, c := range []struct {
		name, src string
		want      string
	}{
		{"the same layout", again, "5:5"},
		{"the same in all", "buffer.dispatch(y, is_token_in_rank=mask, topk_idx=topk_idx, topk_weights=w, handle=None)", "5:5"},
		{"computed again", layout + "\n" + again, "6:5"},
		{"of another method", "buffer.internode_dispatch(y, is_token_in_rank=mask)", "5:5"},
		{"each further one", "_, _, _, _, h2, _ = " + again + "\ndel h2\n" + again + "\n" + again, "5:25"},
		{"a branch knows what came before", "if cond:\n    " + again + "\nelse:\n    with cond:\n        " + again, "6:9 9:13"},
		{"a branch's handle does not replace it", "if cond:\n    _, _, _, _, h2, _ = buffer.dispatch(y, is_token_in_rank=x)\n" + again, "7:5"},
		{"a loop knows what came before", "for i in range(3):\n    rx = " + again, "6:14"},
		{"read in between", "assert handle and mask\nreturn_value = mask.sum()\n" + again, "7:5"},
		{"a cached dispatch between", "buffer.dispatch(y, handle=handle)\n" + again, "6:5"},

		{"right", "buffer.dispatch(y, handle=handle)\nbuffer.dispatch(y, handle)", ""},
		{"right, then combine", "buffer.combine(rx, handle)\nbuffer.capture()", ""},
		{"another routing", "_, _, _, mask, _ = buffer.get_dispatch_layout(y, 8)\n" + again, ""},
		{"other experts", strings.ReplaceAll(layout, "8", "16") + "\n" + again, ""},
		{"a routing rebound", "topk_idx = route(y)\n" + layout + "\n" + again, ""},
		{"a routing changed by index", "topk_idx[0] = -1\n" + layout + "\n" + again, ""},
		{"a routing changed by augmentation", "topk_idx += 1\n" + layout + "\n" + again, ""},
		{"a routing changed in place", "z = topk_idx.masked_fill_(m, -1)\n" + layout + "\n" + again, ""},
		{"a routing changed by a call", "dist.broadcast(topk_idx, 0)\n" + layout + "\n" + again, ""},
		{"a routing changed as out", "z = torch.topk(y, 8, out=topk_idx)\n" + layout + "\n" + again, ""},
		{"a routing changed on a branch", "if cond:\n    topk_idx = y\n" + layout + "\n" + again, ""},
		{"a routing changed by the loop", "for i in cond:\n    " + layout + "\n    " + again + "\n    topk_idx = y", ""},
		{"a mask changed by an inner loop", "for i in cond:\n    " + again + "\n    while i:\n        mask = y", ""},
		{"another mask", "buffer.dispatch(y, is_token_in_rank=y)", ""},
		{"a mask that is computed", "buffer.dispatch(y, is_token_in_rank=mask.clone())", ""},
		{"no mask", "buffer.dispatch(y)", ""},
		{"other weights", "buffer.dispatch(y, is_token_in_rank=mask, topk_idx=topk_idx, topk_weights=y)", ""},
		{"weights that are computed", "buffer.dispatch(y, is_token_in_rank=mask, topk_idx=topk_idx, topk_weights=w.float())", ""},
		{"another config", "buffer.dispatch(y, is_token_in_rank=mask, config=c)", ""},
		{"worst tokens", "buffer.dispatch(y, is_token_in_rank=mask, num_worst_tokens=9)", ""},
		{"arguments not seen", "buffer.dispatch(y, is_token_in_rank=mask, **more)", ""},
		{"positions not sure", "buffer.dispatch(y, None, a, b, mask, c, topk_idx, w, 1, 0, None)", ""},
		{"the handle is gone", "del handle\n" + again, ""},
		{"the handle is another", "handle = None\n" + again, ""},
		{"the buffer is another", "buffer = deep_ep.Buffer(g)\n" + again, ""},
		{"run later", "bench(lambda: " + again + ")", ""},
		{"silenced", again + "  # ncclfix: ignore[advice]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := first + "    " + strings.ReplaceAll(c.src, "\n", "\n    ") + "\n"
			if got := shown(t, src, handle); got != c.want {
				t.Errorf("found at %q, want %q in\n%s", got, c.want, src)
			}
		})
	}
}

// TestNoHandle has a first dispatch whose handle is not at hand for the second.
func TestNoHandle(t *testing.T) {
	const call = "b.dispatch(x, is_token_in_rank=mask)\n"
	for name, src := range map[string]string{
		"dropped":          "_, _, _, _, _, event = " + call + call,
		"not bound":        call + call,
		"in a tuple":       "out = " + call + call,
		"in an attribute":  "_, _, _, _, self.handle, event = " + call + call,
		"on one branch":    "if c:\n    _, _, _, _, h, event = " + call + "else:\n    " + call + call,
		"by the last loop": "for i in c:\n    _, _, _, _, h, event = " + call,
		"in a function":    "def f():\n    _, _, _, _, h, event = " + call + "def g():\n    " + call,
		"low latency":      "_, _, h, _, _ = b.low_latency_dispatch(x, topk, 1, 8)\nb.low_latency_dispatch(x, topk, 1, 8)\n",
	} {
		t.Run(name, func(t *testing.T) {
			if got := shown(t, "import deep_ep\nb = deep_ep.Buffer(g)\n"+src, handle); got != "" {
				t.Errorf("found at %q", got)
			}
		})
	}
	// The same calls, with the handle at hand.
	for name, src := range map[string]string{
		"all six":  "_, _, _, _, h, event = " + call + call,
		"the rest": "y, *_, h, event = " + call + call,
		"in ()":    "(y, _, _, _, h,\n event) = " + call + call,
	} {
		t.Run(name, func(t *testing.T) {
			if got := shown(t, "import deep_ep\nb = deep_ep.Buffer(g)\n"+src, handle); got == "" {
				t.Error("found nothing")
			}
		})
	}
}

func TestMessages(t *testing.T) {
	src := `import deep_ep
b = deep_ep.Buffer(g)
*_, mask, e = b.get_dispatch_layout(topk_idx, 8)
*_, h, e = b.dispatch(x, is_token_in_rank=mask, async_finish=True)
*_, mask, e = b.get_dispatch_layout(topk_idx, 8)
b.dispatch(x, is_token_in_rank=mask)
`
	want := []patchers.Finding{{
		Code:    async,
		Pos:     patchers.Position{Path: "p/a.py", Line: 6, Column: 1},
		Message: "b.dispatch without async_finish=True makes the stream wait for the communication; left alone: with it, the result may only be used behind its event",
	}, {
		Code:    handle,
		Pos:     patchers.Position{Path: "p/a.py", Line: 6, Column: 1},
		Message: "b.dispatch computes its layout again, which handle=h of line 4 would save; left alone: a dispatch with a handle returns no topk_idx and no topk_weights",
		Why: []patchers.Step{
			{Pos: patchers.Position{Path: "p/a.py", Line: 4, Column: 12}, Message: "b.dispatch returned h for the same layout"},
			{Pos: patchers.Position{Path: "p/a.py", Line: 5, Column: 15}, Message: "b.get_dispatch_layout computed that layout again"},
		},
	}}
	if d := cmp.Diff(want, findings(t, "p/a.py", src)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if got := findings(t, "p/a.txt", src); len(got) != 0 {
		t.Errorf("found in a text: %v", got)
	}
}

// TestDepth goes through nested loops, for which one round each is tried first.
func TestDepth(t *testing.T) {
	var src strings.Builder
	src.WriteString("import deep_ep\nb = deep_ep.Buffer(g)\n")
	for i := range 60 {
		src.WriteString(strings.Repeat(" ", i) + "for i in r:\n")
	}
	src.WriteString(strings.Repeat(" ", 60) + "b.combine(x, h)\n")
	if got, want := shown(t, src.String(), async), "63:61"; got != want {
		t.Errorf("found at %q, want %q", got, want)
	}
}

// FuzzRun gives any file to the patcher, which must come back.
func FuzzRun(f *testing.F) {
	for _, src := range []string{
		"import deep_ep\nb = deep_ep.Buffer()\n*_, h, e = b.dispatch(x, is_token_in_rank=m)\nb.dispatch(y, None, a, c, m)\n",
		"from deep_ep import *\nclass A:\n  def f(s, b: 'Optional[Buffer]'=lambda: 0): global b; del b.x[0]\n",
		"import deep_ep\nfor b.x in lambda *a, b=1: (b.dispatch()): nonlocal b\n",
	} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		for _, found := range findings(t, "a.py", src) {
			if lines := strings.Count(src, "\n") + 1; found.Pos.Line < 1 || found.Pos.Line > lines {
				t.Errorf("%s is outside of the file", found.Pos)
			}
		}
	})
}
