package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.stdout, version())
			return err
		},
	}
}

// release is the version and the revision of the wheel that the program is in. Its
// build sets it (go run ./cmd/mkwheel); otherwise it is empty.
var release string

// version returns the version of the wheel or of the module and, as far as the
// build recorded it, the revision that it was built from.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	vcs := map[string]string{}
	for _, s := range info.Settings {
		vcs[s.Key] = s.Value
	}
	v := info.Main.Version
	if rev := vcs["vcs.revision"]; rev != "" {
		v += fmt.Sprintf(" (revision %s of %s", rev, vcs["vcs.time"])
		if vcs["vcs.modified"] == "true" {
			v += ", modified"
		}
		v += ")"
	}
	return v
}
