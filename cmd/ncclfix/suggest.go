package main

import "fmt"

// didYouMean returns `; did you mean "X"?` for the word that is closest to the
// one given, or "" if none is close.
func didYouMean(given string, words []string) string {
	best, least := "", len(given)/3+1
	for _, w := range words {
		if d := distance(given, w); d <= least {
			best, least = w, d-1
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// distance returns how many bytes must be put in, taken out or replaced to make
// b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
