package config

import "strings"

// nearest returns the word that s is most likely a slip of the pen for, or ""
// if none is close: at most one edit in three letters, or one of the two is
// the beginning of the other.
func nearest(s string, words []string) string {
	best, distance := "", max(len(s)/3, 1)+1
	for _, w := range words {
		d := edits(s, w)
		if len(s) > 2 && (strings.HasPrefix(w, s) || strings.HasPrefix(s, w)) {
			d = 1
		}
		if d < distance {
			best, distance = w, d
		}
	}
	return best
}

// edits returns the number of octets to insert, delete, replace or swap with
// their neighbour to make a into b (optimal string alignment distance).
func edits(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row = above, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differ := 1
			if a[i-1] == b[j-1] {
				differ = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+differ)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
