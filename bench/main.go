// Command bench prints tables of results of internal/suite, whose benchmarks compare this
// library with its peers, and of days of package day.
//
// The module is apart from the library's, and from the workspace, so that no peer enters the
// library's requirements. Run the benchmarks with "make bench".
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/httplatch/httplatch/bench/internal/chart"
	"github.com/httplatch/httplatch/bench/internal/day"
	"github.com/httplatch/httplatch/bench/internal/report"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench [flags] [label=]FILE...", flag.ContinueOnError)
	page := flags.Bool("page", false, "print RESULTS.md, which has some of the rows")
	days := flags.String("day", "", "print the page of this file, which make day has written, and draw it into -picture")
	picture := flags.String("picture", "../docs/day.png", "where -day draws")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *days != "" {
		return showDays(out, *days, *picture)
	}
	if flags.NArg() == 0 {
		return errors.New("bench: no files")
	}
	r, err := report.Load(flags.Args()...)
	if err != nil {
		return err
	}
	if *page {
		return r.Page(out)
	}
	return r.Write(out)
}

// showDays prints the page of days, and draws those with more losses than the incident had.
func showDays(out io.Writer, file, picture string) error {
	all, err := day.Load(file)
	if err != nil {
		return err
	}
	if err := day.WritePage(out, all); err != nil {
		return err
	}
	return chart.Day(slices.DeleteFunc(all, func(r day.Record) bool { return r.Rate <= 1 }), picture)
}
