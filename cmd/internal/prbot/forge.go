package prbot

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"ncclfix/patchers/gitpatch"
)

// What GitHub and Gitea do differently, beside the fields of comments: GitHub lists
// the files of a pull request with their hunks, Gitea without; Gitea's review
// comments name the line new_position and have no start_line; where GitHub answers
// 422, Gitea answers 409 for a second pull request and 500 for a line outside of
// the file (Gitea 1.26, seen).

var hunkHeader = regexp.MustCompile(`^@@ -\d+(?:,\d+)? \+(\d+)(?:,(\d+))? @@`)

// shown returns the lines of each file that the pull request shows on its right
// side. A file that is too large to be shown has none.
func (b *Bot) shown(ctx context.Context) (map[string][]lineRange, error) {
	out := map[string][]lineRange{}
	if b.Event.Gitea {
		var text string
		if err := b.api.get(ctx, b.path("/pulls/%d.diff", b.pull.Number), &text); err != nil {
			return nil, err
		}
		if text == "" {
			return out, nil
		}
		series, err := gitpatch.Parse([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("reading the diff of pull request %d: %w", b.pull.Number, err)
		}
		for _, c := range series.Commits {
			for _, f := range c.Files {
				for _, h := range f.Hunks {
					if h.NewLines > 0 {
						out[f.New] = append(out[f.New], lineRange{h.NewStart, h.NewStart + h.NewLines - 1})
					}
				}
			}
		}
		return out, nil
	}
	type file struct {
		Name  string `json:"filename"`
		Patch string `json:"patch"`
	}
	err := list(ctx, b.api, b.path("/pulls/%d/files", b.pull.Number), "", maxPages, func(f file) {
		for line := range strings.Lines(f.Patch) {
			m := hunkHeader.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			start, _ := strconv.Atoi(m[1])
			size := 1
			if m[2] != "" {
				size, _ = strconv.Atoi(m[2])
			}
			if size > 0 {
				out[f.Name] = append(out[f.Name], lineRange{start, start + size - 1})
			}
		}
	})
	return out, err
}
