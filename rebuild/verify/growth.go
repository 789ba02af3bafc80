package verify

import "slices"

// grows reports whether the figures, one a run, go up by more than slack and do so
// steadily. The first run may differ, since it warms caches; with fewer than five
// others nothing is said.
//
// Steadily means that of all pairs of runs, three of four or more have the later
// one higher (Kendall's tau of a half), and that the median of the last third
// exceeds that of the first third by more than slack.
func grows(figures []float64, slack float64) bool {
	if len(figures) < 6 {
		return false
	}
	f := figures[1:]
	up, down := 0, 0
	for i := range f {
		for j := range i {
			switch {
			case f[i] > f[j]:
				up++
			case f[i] < f[j]:
				down++
			}
		}
	}
	pairs := len(f) * (len(f) - 1) / 2
	third := max(1, len(f)/3)
	return float64(up-down) >= float64(pairs)/2 && median(f[len(f)-third:])-median(f[:third]) > slack
}

// median returns the middle figure, or the mean of the middle two; 0 for none.
func median(figures []float64) float64 {
	if len(figures) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(figures))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// rises reports whether counts, at least three, never fall and end higher than
// they began.
func rises(counts []float64) bool {
	return len(counts) >= 3 && slices.IsSorted(counts) && counts[len(counts)-1] > counts[0]
}
