package main

import "slices"

// graph is files and the arrows between them.
type graph struct {
	names []string
	index map[string]int
	// uses[a][b] is what file a uses of file b, each name once. No arrow: nil.
	uses []map[int]map[string]bool
}

func (g *graph) add(name string) {
	if g.index == nil {
		g.index = map[string]int{}
	}
	g.index[name] = len(g.names)
	g.names = append(g.names, name)
	g.uses = append(g.uses, map[int]map[string]bool{})
}

// connect notes that file from uses an object of file to. Use within one file is no arrow.
func (g *graph) connect(from, to, object string) {
	a, known := g.index[from]
	b, alsoKnown := g.index[to]
	if !known || !alsoKnown || a == b {
		return
	}
	if g.uses[a][b] == nil {
		g.uses[a][b] = map[string]bool{}
	}
	g.uses[a][b][object] = true
}

func (g *graph) arrows() int {
	n := 0
	for _, to := range g.uses {
		n += len(to)
	}
	return n
}

// circular counts the arrows whose two files reach each other.
func (g *graph) circular() int {
	n := 0
	for _, component := range g.components() {
		for _, from := range component {
			for _, to := range component {
				n += g.arrow(from, to)
			}
		}
	}
	return n
}

// pairs counts the pairs of files that use each other: one arrow of each runs back up.
func (g *graph) pairs() int {
	n := 0
	for from := range g.names {
		for to := range from {
			n += g.arrow(from, to) * g.arrow(to, from)
		}
	}
	return n
}

// circle returns the largest strongly connected component, by name, if it has more than one file.
func (g *graph) circle() []string {
	var largest []string
	for _, component := range g.components() {
		if len(component) > max(1, len(largest)) {
			largest = nil
			for _, file := range component {
				largest = append(largest, g.names[file])
			}
		}
	}
	slices.Sort(largest)
	return largest
}

// components returns the strongly connected components by Tarjan's algorithm: a component
// stands after those that it has arrows to.
func (g *graph) components() [][]int {
	const unseen = -1
	var all [][]int
	var stack []int
	number, low, onStack, next := make([]int, len(g.names)), make([]int, len(g.names)), make([]bool, len(g.names)), 0
	for file := range number {
		number[file] = unseen
	}
	var visit func(int)
	visit = func(a int) {
		number[a], low[a] = next, next
		next++
		stack, onStack[a] = append(stack, a), true
		for _, b := range g.targets(a) {
			if number[b] == unseen {
				visit(b)
				low[a] = min(low[a], low[b])
			} else if onStack[b] {
				low[a] = min(low[a], number[b])
			}
		}
		if low[a] != number[a] {
			return
		}
		root := slices.Index(stack, a)
		component := slices.Clone(stack[root:])
		stack = stack[:root]
		for _, file := range component {
			onStack[file] = false
		}
		all = append(all, component)
	}
	for file := range g.names {
		if number[file] == unseen {
			visit(file)
		}
	}
	return all
}

// targets returns the files that a file uses, in their order.
func (g *graph) targets(from int) []int {
	var to []int
	for b := range g.names {
		if g.uses[from][b] != nil {
			to = append(to, b)
		}
	}
	return to
}
