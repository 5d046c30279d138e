// Command graph counts what holds the files of a Go package together: how many of them reach
// each other in a circle, and how many arrows between them run back up. Run by make graph.
//
// An arrow runs from a file to each other file of the package that declares something it uses:
// a type, function, variable, constant, method or field. A circle is a strongly connected
// component of files. An arrow runs back up if it points to a file that stands above its own
// in the order of the files that has the fewest of them. The best order is hard to find: this
// one comes from a greedy start and moves of single files, so the figure is an upper bound.
// Files of tests are left out.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "also list the circle, the order of the files, and the arrows back up")
	circle := flag.Int("circle", -1, "fail if a circle has more files than this (-1: never)")
	up := flag.Int("up", -1, "fail if more arrows of a package run back up than this (-1: never)")
	methods := flag.Int("methods", -1, "fail if a type has more methods than this (-1: never)")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: graph [flags] packages")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(flag.Args(), *verbose, limits{*circle, *up, *methods}); err != nil {
		fmt.Fprintln(os.Stderr, "graph:", err)
		os.Exit(1)
	}
}

type limits struct{ circle, up, methods int }

func run(patterns []string, verbose bool, most limits) error {
	packages, err := load(patterns)
	if err != nil {
		return err
	}
	var over []string
	for _, p := range packages {
		fmt.Print(p.summary())
		if verbose {
			fmt.Print(p.details())
		}
		over = append(over, p.over(most)...)
	}
	if len(over) > 0 {
		return fmt.Errorf("more than allowed: %s", strings.Join(over, ", "))
	}
	return nil
}
