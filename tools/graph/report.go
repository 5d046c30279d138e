package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// summary is one line for the package, and one for its type with the most methods.
func (m measured) summary() string {
	out := fmt.Sprintf("%s: %d files, %d lines; largest circle %d files; %d arrows, %d of them between files of a circle, %d back up; %d pairs of files use each other\n",
		m.path, len(m.files.names), m.lines, len(m.files.circle()), m.files.arrows(), m.files.circular(), len(m.back()), m.files.pairs())
	if len(m.types) > 0 {
		most := m.types[0]
		out += fmt.Sprintf("\tmost methods: %s, %d in %d files\n", most.name, most.methods, most.files)
	}
	return out
}

// details lists the circle, the order of the files from the top down, and each arrow back up
// with what it stands for.
func (m measured) details() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\tcircle: %s\n\torder:", strings.Join(m.files.circle(), " "))
	for _, file := range m.files.order() {
		fmt.Fprintf(&out, " %s", m.files.names[file])
	}
	out.WriteString("\n")
	for _, arrow := range m.back() {
		from, to := arrow[0], arrow[1]
		used := slices.Sorted(maps.Keys(m.files.uses[from][to]))
		fmt.Fprintf(&out, "\tup: %s -> %s: %s\n", m.files.names[from], m.files.names[to], strings.Join(used, " "))
	}
	return out.String()
}

func (m measured) back() [][2]int { return m.files.back(m.files.order()) }

// over lists the figures that are above their limits. A limit below zero is none.
func (m measured) over(most limits) []string {
	figures := []struct {
		name          string
		figure, limit int
	}{
		{"largest circle", len(m.files.circle()), most.circle},
		{"arrows back up", len(m.back()), most.up},
		{"methods", m.mostMethods(), most.methods},
	}
	var over []string
	for _, f := range figures {
		if f.limit >= 0 && f.figure > f.limit {
			over = append(over, fmt.Sprintf("%s in %s: %d, at most %d", f.name, m.path, f.figure, f.limit))
		}
	}
	return over
}

func (m measured) mostMethods() int {
	if len(m.types) == 0 {
		return 0
	}
	return m.types[0].methods
}
