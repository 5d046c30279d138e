package policy

import (
	"slices"
	"strings"
)

// nearest returns the known name that was probably meant by name, "" if none is similar.
func nearest(name string, known []string) string {
	best, least := "", len(name)/3+1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := distance(plain(name), plain(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// plain returns name without capitals and separators, which people confuse most.
func plain(name string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(name))
}

// distance counts the bytes to insert, remove or replace in a to make b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0]++
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
