package main

import (
	"fmt"
	"slices"
	"testing"
)

func TestKnot(t *testing.T) {
	packages, err := load([]string{"./testdata/knot"})
	if err != nil {
		t.Fatal(err)
	}
	knot := packages[0]
	requireEqual(t, []string{"below.go", "cycle.go", "top.go"}, knot.files.circle())
	requireEqual(t, []int{4, 5, 5, 2}, []int{len(knot.files.names), knot.files.arrows(), knot.files.circular(), knot.files.pairs()})
	requireEqual(t, 2, len(knot.back()))
	requireEqual(t, []methodSet{{"Top", 2, 2}, {"below", 1, 1}}, knot.types)

	requireEqual(t, nil, knot.over(limits{3, 2, 2}))
	requireEqual(t, nil, knot.over(limits{-1, -1, -1}))
	requireEqual(t, 3, len(knot.over(limits{2, 1, 1})))
}

func TestLoadFails(t *testing.T) {
	if _, err := load([]string{"./testdata/missing"}); err == nil {
		t.Fatal("a missing package was measured")
	}
}

func TestOrder(t *testing.T) {
	for name, test := range map[string]struct {
		arrows       []string
		circle, back int
	}{
		"none":                    {nil, 0, 0},
		"a line":                  {[]string{"ab", "bc", "cd"}, 0, 0},
		"a pair":                  {[]string{"ab", "ba"}, 2, 1},
		"a circle":                {[]string{"ab", "bc", "cd", "da"}, 4, 1},
		"two circles":             {[]string{"ab", "bc", "ca", "de", "ed", "cd"}, 3, 2},
		"a circle below a line":   {[]string{"ab", "bc", "cd", "dc"}, 2, 1},
		"all use each other":      {[]string{"ab", "ac", "ba", "bc", "ca", "cb"}, 3, 3},
		"one that all others use": {[]string{"ea", "da", "ca", "ba", "ab"}, 2, 1},
	} {
		var g graph
		for _, file := range "edcba" {
			g.add(string(file))
		}
		for _, arrow := range test.arrows {
			g.connect(arrow[:1], arrow[1:], "x")
		}
		order := g.order()
		requireEqual(t, []int{0, 1, 2, 3, 4}, slices.Sorted(slices.Values(order)))
		requireEqual(t, fmt.Sprint(name, test.circle, test.back), fmt.Sprint(name, len(g.circle()), len(g.back(order))))
	}
}

func requireEqual(t *testing.T, want, got any) {
	t.Helper()
	if fmt.Sprint(want) != fmt.Sprint(got) && !(want == nil && fmt.Sprint(got) == "[]") {
		t.Fatalf("want %v, got %v", want, got)
	}
}
