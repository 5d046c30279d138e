package main

import "slices"

// order returns the files from the top down so that few arrows run back up: no arrow between
// two components does, and within one, the files of greedy are moved one at a time, as long as
// a move saves an arrow.
func (g *graph) order() []int {
	var order []int
	components := g.components()
	slices.Reverse(components)
	for _, component := range components {
		order = append(order, g.improve(g.greedy(component))...)
	}
	return order
}

// greedy orders a component as Eades, Lin and Smyth do: files without arrows from the rest go
// to the top, files without arrows to the rest to the bottom, and otherwise to the top goes
// the file with the most arrows to the rest, less those from it.
func (g *graph) greedy(component []int) []int {
	rest := slices.Sorted(slices.Values(component))
	var top, bottom []int
	for len(rest) > 0 {
		best, bestAt, atBottom := 0, -1, false
		for i, file := range rest {
			out, in := 0, 0
			for _, other := range rest {
				out += g.arrow(file, other)
				in += g.arrow(other, file)
			}
			if out == 0 || in == 0 {
				bestAt, atBottom = i, out == 0 && in > 0
				break
			}
			if bestAt < 0 || out-in > best {
				best, bestAt = out-in, i
			}
		}
		if atBottom {
			bottom = append(bottom, rest[bestAt])
		} else {
			top = append(top, rest[bestAt])
		}
		rest = slices.Delete(rest, bestAt, bestAt+1)
	}
	slices.Reverse(bottom)
	return append(top, bottom...)
}

// improve moves single files to the place that saves the most arrows, until none saves any.
func (g *graph) improve(order []int) []int {
	for moved := true; moved; {
		moved = false
		for from := range order {
			if to := g.bestPlace(order, from); to != from {
				file := order[from]
				order = slices.Insert(slices.Delete(order, from, from+1), to, file)
				moved = true
			}
		}
	}
	return order
}

// bestPlace returns where the file at from has the fewest arrows back up.
func (g *graph) bestPlace(order []int, from int) int {
	file, best, least := order[from], from, 0
	saved := 0
	for to := from - 1; to >= 0; to-- { // up, past order[to]
		saved += g.arrow(order[to], file) - g.arrow(file, order[to])
		if saved < least {
			best, least = to, saved
		}
	}
	saved = 0
	for to := from + 1; to < len(order); to++ { // down, past order[to]
		saved += g.arrow(file, order[to]) - g.arrow(order[to], file)
		if saved < least {
			best, least = to, saved
		}
	}
	return best
}

func (g *graph) arrow(from, to int) int {
	if g.uses[from][to] != nil {
		return 1
	}
	return 0
}

// back returns the arrows that run back up in an order.
func (g *graph) back(order []int) [][2]int {
	var back [][2]int
	for at, from := range order {
		for _, to := range order[:at] {
			if g.arrow(from, to) == 1 {
				back = append(back, [2]int{from, to})
			}
		}
	}
	return back
}
