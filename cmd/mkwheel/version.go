package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pep440 is a version as Python packages have it, and as tags of Go modules have
// it as far as that can be told in the other's terms: no epoch, one number behind
// a, b or rc.
var pep440 = regexp.MustCompile(`^v?(\d+(?:\.\d+)*)(?:-?(alpha|beta|a|b|rc)\.?(\d+))?(?:\.post(\d+))?(?:\.dev(\d+))?(?:\+([a-zA-Z0-9]+(?:\.[a-zA-Z0-9]+)*))?$`)

// normalize returns the version in the one spelling of PEP 440 that the names of
// wheels want: v1.2.3-rc.1 gives 1.2.3rc1.
func normalize(version string) (string, error) {
	m := pep440.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf("%q is no version of a Python package; 1.2.3, 1.2.3rc1 or v1.2.3-rc.1 would be", version)
	}
	var parts []string
	for part := range strings.SplitSeq(m[1], ".") {
		parts = append(parts, plain(part))
	}
	v := strings.Join(parts, ".")
	if m[2] != "" {
		kind := map[string]string{"alpha": "a", "beta": "b"}[m[2]]
		if kind == "" {
			kind = m[2]
		}
		v += kind + plain(m[3])
	}
	if m[4] != "" {
		v += ".post" + plain(m[4])
	}
	if m[5] != "" {
		v += ".dev" + plain(m[5])
	}
	if m[6] != "" {
		v += "+" + strings.ToLower(m[6])
	}
	return v, nil
}

// plain returns digits without zeros in front.
func plain(digits string) string {
	if s := strings.TrimLeft(digits, "0"); s != "" {
		return s
	}
	return "0"
}

// A state is what git says of a checkout.
type state struct {
	tag      string // the last tag v... that HEAD has or follows; empty if there is none
	exact    bool   // HEAD has it
	revision string
	time     time.Time // of the commit, in UTC
	modified bool      // the work tree has what HEAD has not, files that git ignores aside
}

// examine returns the state of the checkout in root.
func examine(ctx context.Context, root string) (state, error) {
	git := func(args ...string) (string, error) {
		return output(ctx, root, "git", args...)
	}
	head, err := git("log", "-1", "--no-show-signature", "--format=%H %ct")
	if err != nil {
		return state{}, err
	}
	status, err := git("status", "--porcelain")
	if err != nil {
		return state{}, err
	}
	s := state{modified: status != ""}
	var seconds int64
	if _, err := fmt.Sscan(head, &s.revision, &seconds); err != nil {
		return state{}, fmt.Errorf("git log says %q of HEAD", head)
	}
	s.time = time.Unix(seconds, 0).UTC()
	if described, err := git("describe", "--tags", "--long", "--match", "v[0-9]*"); err == nil {
		parts := strings.Split(described, "-") // TAG-COMMITS-gREVISION
		n := len(parts)
		s.tag, s.exact = strings.Join(parts[:n-2], "-"), parts[n-2] == "0"
	}
	return s, nil
}

// version returns the version of the tag if HEAD has it and nothing is modified,
// else the one that comes next, as a development version of the time and revision
// of HEAD.
func (s state) version() (string, error) {
	v := "0.0.0"
	if s.tag != "" {
		var err error
		if v, err = normalize(s.tag); err != nil || s.exact && !s.modified {
			return v, err
		}
		v, _, _ = strings.Cut(v, "+")
		n := strings.LastIndexFunc(v, func(r rune) bool { return r < '0' || r > '9' }) + 1
		last, err := strconv.Atoi(v[n:])
		if err != nil || strings.Contains(v, ".dev") {
			return "", fmt.Errorf("no version follows the tag %q", s.tag)
		}
		v = v[:n] + strconv.Itoa(last+1)
	}
	v += ".dev" + s.time.Format("20060102150405") + "+g" + s.revision[:12]
	if s.modified {
		v += ".dirty"
	}
	return v, nil
}

// String returns what ncclfix version prints behind the version. It is spelled as
// where go build records it.
func (s state) String() string {
	text := "revision " + s.revision + " of " + s.time.Format(time.RFC3339)
	if s.modified {
		text += ", modified"
	}
	return text
}
