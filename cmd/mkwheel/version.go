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

// describe returns the version of the checkout in root: that of the tag v... at
// HEAD if nothing is modified, else the version that comes after the last such tag,
// as a development version of the time and revision of HEAD.
func describe(ctx context.Context, root string) (string, error) {
	git := func(args ...string) (string, error) {
		return output(ctx, root, "git", args...)
	}
	head, err := git("log", "-1", "--abbrev=12", "--format=%ct %h")
	if err != nil {
		return "", err
	}
	status, err := git("status", "--porcelain")
	if err != nil {
		return "", err
	}
	tag, behind := "", ""
	if described, err := git("describe", "--tags", "--long", "--match", "v[0-9]*"); err == nil {
		parts := strings.Split(described, "-") // TAG-COMMITS-gREVISION
		n := len(parts)
		tag, behind = strings.Join(parts[:n-2], "-"), parts[n-2]
	}
	seconds, revision, _ := strings.Cut(head, " ")
	return versionOf(tag, behind == "0" && status == "", seconds, revision, status != "")
}

// versionOf returns the version of a commit: exactly that of tag, or of a state
// behind it. An empty tag is one in front of all others.
func versionOf(tag string, exact bool, seconds, revision string, dirty bool) (string, error) {
	v := "0.0.0"
	if tag != "" {
		var err error
		if v, err = normalize(tag); err != nil || exact {
			return v, err
		}
		m := regexp.MustCompile(`^(.*?)(\d+)$`).FindStringSubmatch(strings.SplitN(v, "+", 2)[0])
		last, err := strconv.Atoi(m[2])
		if err != nil || strings.HasSuffix(m[1], ".dev") {
			return "", fmt.Errorf("no version follows the tag %q", tag)
		}
		v = m[1] + strconv.Itoa(last+1)
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return "", fmt.Errorf("the time of HEAD is %q", seconds)
	}
	v += ".dev" + time.Unix(at, 0).UTC().Format("20060102150405") + "+g" + revision
	if dirty {
		v += ".dirty"
	}
	return v, nil
}
