package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/bench/internal/chart"
	"github.com/httplatch/httplatch/bench/internal/day"
	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

// surgeFlags are those of the parts overload and outage.
func surgeFlags(flags *flag.FlagSet, set *suite.Settings) {
	flags.DurationVar(&set.Load, "load", 10*time.Second, "overload: how long more is asked for than the server can do")
	flags.DurationVar(&set.Then, "then", 20*time.Second, "overload: how long five callers are watched then")
	flags.DurationVar(&set.Recovery, "recovery", 30*time.Second, "outage: how long the callers are watched when it is over, at most")
	set.Outages = []time.Duration{time.Second, 5 * time.Second, time.Minute}
	flags.Func("outages", "outage: how long the server is gone (1s,5s,60s)", func(text string) error {
		set.Outages = nil
		for one := range strings.SplitSeq(text, ",") {
			d, err := time.ParseDuration(one)
			if err != nil || d < time.Second {
				return errors.Join(errors.New("not a list of whole seconds"), err)
			}
			set.Outages = append(set.Outages, d)
		}
		return nil
	})
	flags.Float64Var(&set.Quiet, "quiet", 0, "overload, outage: wait until everything else uses less than so many cores, and play a scenario again, four times at most, if it did not stay so; 0: do not look")
	flags.Func("only", "overload, outage: only scenarios whose name matches, such as '^5 C, Open'", func(text string) (err error) {
		set.Only, err = regexp.Compile(text)
		return err
	})
}

// show draws earlier runs, or prints their table.
func show(in files, plot bool) error {
	r, err := read(in.figures)
	if err != nil {
		return err
	}
	if in.before != "" {
		before, err := read(in.before)
		if err != nil {
			return err
		}
		r.Samples.AddAll(before.Samples, suite.Before)
	}
	if !plot {
		return cmp.Or(r.Print(os.Stdout), r.PrintDetails(os.Stdout))
	}
	first, _, _ := strings.Cut(in.figures, ",")
	pictures, err := chart.Draw(r.Samples, filepath.Dir(first))
	for _, file := range pictures {
		_, _ = fmt.Fprintln(os.Stdout, file)
	}
	return err
}

// showDays prints the table of days, and draws those with more losses than the incident had.
func showDays(file, picture string) error {
	all, err := day.Load(file)
	if err != nil {
		return err
	}
	if err := day.WriteTable(os.Stdout, all); err != nil {
		return err
	}
	return chart.Day(slices.DeleteFunc(all, func(r day.Record) bool { return r.Rate <= 1 }), picture)
}

// read joins runs, the rounds of one after those of the other.
func read(list string) (*report.Run, error) {
	var joined *report.Run
	for file := range strings.SplitSeq(list, ",") {
		text, err := os.ReadFile(file) //nolint:gosec // the developer's choice
		if err != nil {
			return nil, fmt.Errorf("bench: nothing there yet, run make bench or make bench-overload: %w", err)
		}
		var r report.Run
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("bench: %s: %w", file, err)
		}
		if joined == nil {
			joined = &r
			continue
		}
		joined.Rounds += r.Rounds
		joined.Samples.AddAll(r.Samples, func(who string) string { return who })
	}
	return joined, nil
}
