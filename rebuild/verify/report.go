package verify

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ncclfix/rebuild/ncclog"
)

// Save writes the report beside each other as NAME.md, NAME.json and, where there
// is something to plot, NAME.svg, and returns the files' names. An ending .md,
// .json or .svg of name is not doubled.
func (r *Report) Save(name string) (files []string, err error) {
	switch ext := filepath.Ext(name); ext {
	case ".md", ".json", ".svg":
		name = strings.TrimSuffix(name, ext)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	plot := r.SVG()
	image := ""
	if plot != "" {
		image = filepath.Base(name) + ".svg"
	}
	for _, f := range []struct{ ext, text string }{
		{".json", string(data) + "\n"}, {".svg", plot}, {".md", r.Markdown(image)},
	} {
		if f.text == "" {
			continue
		}
		if err := replaceFile(name+f.ext, f.text); err != nil {
			return files, fmt.Errorf("writing the report %s: %w", name+f.ext, cause(err))
		}
		files = append(files, name+f.ext)
	}
	return files, nil
}

// replaceFile writes a file whole or not at all.
func replaceFile(name, text string) error {
	temp, err := os.CreateTemp(filepath.Dir(name), ".ncclfix-report-")
	if err != nil {
		return err
	}
	_, err = temp.WriteString(text)
	if err == nil {
		err = temp.Chmod(0o644)
	}
	if e := temp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(temp.Name(), name)
	}
	if err != nil {
		os.Remove(temp.Name())
	}
	return err
}

var signs = map[Verdict]string{Pass: "✅", Fail: "❌", Unknown: "➖"}

// Markdown is the report for a pull request. image is the plot's address, or "".
func (r *Report) Markdown(image string) string {
	var b strings.Builder
	title := "verified"
	if !r.Passed {
		title = "not verified"
	}
	fmt.Fprintf(&b, "### ncclfix verify: %s\n\n", title)
	fmt.Fprintf(&b, "%s of %d", count(len(r.Runs), "run"), r.Wanted)
	if r.Interrupted {
		b.WriteString(" (interrupted)")
	}
	fmt.Fprintf(&b, " of %s\n\n", code(strings.Join(r.Command, " ")))
	b.WriteString("| check | | result |\n| --- | --- | --- |\n")
	for _, c := range r.Checks {
		fmt.Fprintf(&b, "| %s | %s %s | %s |\n", c.Name, signs[c.Verdict], c.Verdict, cell(c.Summary))
	}
	if len(r.Bandwidth) > 0 {
		against := ""
		if r.Baseline != "" {
			against = ", against " + code(r.Baseline)
		}
		fmt.Fprintf(&b, "\nBandwidth in GB/s, medians%s:\n\n| | this checkout | baseline | ratio |\n| --- | ---: | ---: | ---: |\n", against)
		for _, x := range r.Bandwidth {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(x.Label), figure(x.Candidate, ""), figure(x.Baseline, ""), figure(100*x.Ratio, "%"))
		}
	}
	if image != "" {
		fmt.Fprintf(&b, "\n![bandwidth and peak memory by run](%s)\n", strings.ReplaceAll(image, " ", "%20"))
	}
	for _, c := range r.Checks {
		if len(c.Details) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n<details><summary>%s</summary>\n\n", c.Name)
		for _, d := range c.Details {
			fmt.Fprintf(&b, "- %s\n", code(d))
		}
		b.WriteString("\n</details>\n")
	}
	return b.String()
}

// figure shows a measured number, and nothing for none.
func figure(v float64, unit string) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f%s", v, unit)
}

// code returns text as a code span, whatever it holds.
func code(text string) string {
	text = ncclog.Quote(text)
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") {
		text = " " + text + " "
	}
	return fence + text + fence
}

// cell returns text for a table: other people's words with no markup in them.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "&", "&amp;", "`", "'", "[", `\[`, "*", `\*`, "_", `\_`, "@", "@\u200b").Replace(ncclog.Quote(text))
}
