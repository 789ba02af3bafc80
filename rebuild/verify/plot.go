package verify

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"ncclfix/rebuild/ncclog"
)

const (
	plotWidth, plotHeight = 640, 180 // of one panel
	plotLeft, plotTop     = 60, 28
	plotLabels            = 6 // bandwidths that are drawn; more would not be told apart
)

var plotColours = []string{"#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#57606a"}

// A series is one line of a plot: a figure for each run.
type series struct {
	name    string
	figures []float64
	dashed  bool // the baseline's
}

// SVG plots bandwidth and peak memory by run: two panels, the baseline dashed. With
// fewer than two runs there is nothing to plot, and it returns "".
func (r *Report) SVG() string {
	if len(r.Runs) < 2 {
		return ""
	}
	var speed []series
	order, ours := bandwidths(r.Runs)
	_, theirs := bandwidths(r.BaselineRuns)
	for _, label := range order[:min(len(order), plotLabels)] {
		speed = append(speed, series{label, ours[label], false})
		if f := theirs[label]; len(f) > 1 {
			speed = append(speed, series{label + ", baseline", f, true})
		}
	}
	var memory []float64
	for _, run := range r.Runs {
		memory = append(memory, float64(run.PeakRSS)/(1<<20))
	}
	panels := []string{panel("peak memory of a process, MiB", []series{{"peak memory", memory, false}})}
	if len(speed) > 0 {
		panels = append(panels, panel("bandwidth, GB/s", speed))
		slices.Reverse(panels)
	}
	var b strings.Builder
	height, full := 0, 0
	for _, p := range panels {
		full += plotHeight + 14*strings.Count(p, "<title>")
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", plotWidth, full)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, full)
	for _, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(0,%d)">`+"\n%s</g>\n", height, p)
		height += plotHeight + 14*strings.Count(p, "<title>")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// panel draws the series over their common range, from 0, with a legend below.
func panel(title string, all []series) string {
	top, runs := 0.0, 0
	for _, s := range all {
		top = max(top, slices.Max(s.figures))
		runs = max(runs, len(s.figures))
	}
	if top == 0 {
		top = 1
	}
	bottom := float64(plotHeight - 24)
	x := func(i int) float64 { return plotLeft + float64(i)*(plotWidth-plotLeft-16)/float64(max(1, runs-1)) }
	y := func(v float64) float64 { return bottom - v/(1.05*top)*(bottom-plotTop) }
	var b strings.Builder
	fmt.Fprintf(&b, `<text x="%d" y="16" font-size="13">%s</text>`+"\n", plotLeft, text(title))
	for _, v := range []float64{0, top / 2, top} {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#d0d7de"/><text x="%d" y="%.1f" text-anchor="end">%.4g</text>`+"\n",
			plotLeft, y(v), plotWidth-16, plotLeft-6, y(v)+4, v)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%.1f">run 1</text><text x="%d" y="%.1f" text-anchor="end">run %d</text>`+"\n", plotLeft, bottom+14, plotWidth-16, bottom+14, runs)
	colour := -1
	for i, s := range all {
		dash := ""
		if s.dashed {
			dash = ` stroke-dasharray="4 3"`
		} else {
			colour++
		}
		var points []string
		for j, v := range s.figures {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(j), y(v)))
		}
		c := plotColours[colour%len(plotColours)]
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"%s><title>%s</title></polyline>`+"\n", strings.Join(points, " "), c, dash, text(s.name))
		fmt.Fprintf(&b, `<path d="M%d %dh20" stroke="%s" stroke-width="1.5"%s/><text x="%d" y="%d">%s</text>`+"\n",
			plotLeft, plotHeight+14*i-4, c, dash, plotLeft+26, plotHeight+14*i, text(s.name))
	}
	return b.String()
}

// text returns s as XML text.
func text(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(ncclog.Quote(s)))
	return b.String()
}
