package ncclog

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
)

var (
	bandwidth    = regexp.MustCompile(`(\d+(?:\.\d+)?)\s?GB/s(\s\([^()]*\))?`)
	busBandwidth = regexp.MustCompile(`^#?\s*(Avg bus bandwidth)\s*:\s*(\d+(?:\.\d+)?)`) // nccl-tests; GB/s is understood
	varying      = regexp.MustCompile(`\d+\.\d+|\d+(\s?(?:[mun]?s|us|μs|MB|KB)\b)`)
	rankWord     = regexp.MustCompile(`(?i)^\W*rank\s?\d+\W*`)
)

// measure reads the bandwidths of a line. A label is what stands before the
// number since the last comma or bar, with a unit in brackets behind the number
// ("Best dispatch (FP8) (NVL)"); the rank and other measured figures are no part of
// it. A line that names the best of several is labelled by what stands before its
// colon alone: what follows says which one was best, and that may vary.
func (p *Parser) measure(b []byte) bool {
	if m := busBandwidth.FindSubmatch(b); m != nil {
		p.value(string(m[1]), string(m[2]))
		p.settle(b)
		return true
	}
	if !contains(b, "GB/s") {
		return false
	}
	found := bandwidth.FindAllSubmatchIndex(b, -1)
	if found == nil {
		return false
	}
	first, end := "", 0
	for _, m := range found {
		label := labelOf(b[end:m[2]])
		switch {
		case first == "":
			if head, _, ok := strings.Cut(string(b[:m[2]]), ":"); ok && strings.Contains(strings.ToLower(head), "best") {
				label = labelOf([]byte(head))
			} else if label = labelOf(b[:m[2]]); label == "" {
				label = "bandwidth"
			}
			first = label
		case label == "":
			label = first
		}
		if m[4] >= 0 {
			label += string(b[m[4]:m[5]])
		}
		p.value(label, string(b[m[2]:m[3]]))
		end = m[1]
	}
	p.settle(b)
	return true
}

func labelOf(b []byte) string {
	s := rankWord.ReplaceAllString(string(bytes.TrimSpace(b)), "")
	s = varying.ReplaceAllString(s, "#$1")
	if i := strings.LastIndexAny(s, "|;"); i >= 0 {
		s = s[i+1:]
	}
	return strings.Trim(s, " \t:=,~")
}

func (p *Parser) value(label, number string) {
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || p.values == maxMeasurements {
		p.dropped++
		return
	}
	p.values++
	i, ok := p.labels[label]
	if !ok {
		if p.labels == nil {
			p.labels = map[string]int{}
		}
		i = len(p.meas)
		p.labels[label] = i
		p.meas = append(p.meas, Measurement{Label: label})
	}
	p.meas[i].Values = append(p.meas[i].Values, v)
}
