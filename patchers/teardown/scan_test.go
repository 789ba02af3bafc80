package teardown

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlaces(t *testing.T) {
	for src, want := range map[string][]int{
		"":                     nil,
		"mport":                nil,
		"impor":                nil,
		"import":               {0},
		"m import mm iimport;": {2, 13},
		"importimport":         {0, 6},
	} {
		if d := cmp.Diff(want, slices.Collect(places([]byte(src), "import", 'm'))); d != "" {
			t.Errorf("%q (-want +got):\n%s", src, d)
		}
	}
}

func TestImportedModules(t *testing.T) {
	for src, want := range map[string][]string{
		"import a.b, c as d; import e\n":           {"a.b", "c", "e"},
		"if x: from a . b import c as d, e\n":      {"a.b", "a.b.c", "a.b.e"},
		"from .. import a\nfrom .m import *":       {"..", "..a", ".m"},
		"from a import (  # why\n  b,\n  c,\n)\nd": {"a", "a.b", "a.c"},
		"important = reimport(x)\n":                nil,
	} {
		var got []string
		importedModules([]byte(src), func(name []byte) { got = append(got, string(name)) })
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", src, d)
		}
	}
}
