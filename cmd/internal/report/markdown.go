package report

import (
	"fmt"
	"io"
	"strings"
)

// Markdown prints r for a step summary or a comment, in at most limit bytes; GitHub
// drops a summary of more than 1 MiB and refuses a comment of more than 64 KiB.
// A diff that does not fit is left out whole, findings that do not fit are cut
// off; the text says so. A limit of less than 1 KiB may be exceeded.
//
// All that comes from the tree stands in fenced blocks, where neither HTML nor
// mentions nor links mean anything.
func Markdown(w io.Writer, r *Report, limit int) error {
	results := r.shown()
	if len(results) == 0 {
		_, err := io.WriteString(w, "### ncclfix: nothing found\n")
		return err
	}
	head := fmt.Sprintf("### ncclfix: %s\n\n", Count(r.Changes))
	var findings strings.Builder
	if err := (Text{}).Findings(&findings, results); err != nil {
		return err
	}
	const reserve = 512 // for fences and remarks
	list := fit(findings.String(), limit-len(head)-reserve)
	text := head + Fence("text", list)
	if cut := strings.Count(findings.String()[len(list):], "\n"); cut > 0 {
		text += fmt.Sprintf("\n… and %s.\n", Plural(cut, "more line", "more lines"))
	}
	diff, err := r.Changes.Unified()
	if err != nil {
		return err
	}
	if diff != "" {
		// The diff is for reading here: what git takes is what ncclfix diff prints.
		var b strings.Builder
		if err := (Text{}).Diff(&b, diff); err != nil {
			return err
		}
		details := "\n<details><summary>The repair</summary>\n\n" + Fence("diff", b.String()) + "\n</details>\n"
		if len(text)+len(details) > limit {
			details = "\nThe repair is too long to be shown here: `ncclfix diff` prints it.\n"
		}
		text += details
	}
	_, err = io.WriteString(w, text)
	return err
}

// fit returns as many whole lines of text as size bytes hold.
func fit(text string, size int) string {
	if len(text) <= size {
		return text
	}
	return text[:strings.LastIndexByte(text[:max(0, size)], '\n')+1]
}

// Fence returns text, which ends in a newline, as a fenced block of Markdown whose
// fence is longer than any that is in the text.
func Fence(language, text string) string {
	longest, run := 0, 0
	for _, c := range text {
		if c == '`' {
			run++
		} else {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", max(3, longest+1))
	return fence + language + "\n" + text + fence + "\n"
}

// Code returns s as a code span of Markdown, which nothing in s can end.
func Code(s string) string {
	s = Visible(s)
	longest, run := 0, 0
	for _, c := range s {
		if c == '`' {
			run++
		} else {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") || strings.TrimSpace(s) != s {
		s = " " + s + " "
	}
	return fence + s + fence
}
