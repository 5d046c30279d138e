// Command bench compares this library with its peers: locks on one real
// Redis, guards over HTTP, and what both do as keys become many. It prints one
// table, and writes it, and all figures, to RESULTS.md.
//
// The module is apart from the library's, and from the workspace, so that no
// peer enters the library's requirements. Run it with "make bench".
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/bench/internal/suite"
)

// files are where a run is written.
type files struct{ results, figures, before string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	switch {
	case slices.Equal(args, []string{suite.WorkerArg}):
		return suite.Work(ctx, os.Stdin, os.Stdout)
	case slices.Equal(args, []string{suite.ScenarioArg}):
		slog.SetDefault(slog.New(slog.DiscardHandler))
		return suite.PlayScenario(ctx, os.Stdin, os.Stdout)
	default:
		return command(ctx, args)
	}
}

// command is what people ask for.
func command(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	set := suite.Settings{Log: os.Stderr}
	flags.IntVar(&set.Rounds, "rounds", 9, "rounds of every comparison")
	flags.DurationVar(&set.Window, "window", 400*time.Millisecond, "how long one measurement lasts")
	flags.IntVar(&set.Pool, "pool", 10*runtime.GOMAXPROCS(0), "Redis connections of each contender but go-zero, which has the default")
	flags.Float64Var(&set.Rate, "rate", 4000, "requests a second of the open loop")
	flags.IntVar(&set.Many, "many", suite.Many, "callers of the part "+suite.Crowd)
	flags.Uint64Var(&set.Seed, "seed", uint64(time.Now().UnixNano()), "of the order of contenders and of arrivals")
	parts := flags.String("parts", "", "only these, separated by commas: "+strings.Join(suite.PartNames(), ", "))
	keys := flags.String("keys", "1000,100000,1000000", "live keys of the part "+suite.Growth)
	receipts := flags.String("receipts", "1000,1000000", "kept receipts of the part "+suite.Receipts)
	flags.DurationVar(&set.Play, "play", time.Minute, "clean-up: how long an hour lasts")
	surgeFlags(flags, &set)
	var out files
	flags.StringVar(&out.results, "results", "RESULTS.md", "where the table is written, and all medians")
	flags.StringVar(&out.figures, "figures", "../.artifacts/bench.json", "where the figures of all rounds are written, for -plot and -table; those of -parts only if it is given")
	flags.StringVar(&out.before, "before", "", "figures of another version, which -plot and -table show next to those of -figures; both may be lists, separated by commas, of one run each")
	plot := flags.Bool("plot", false, "draw what the last run measured, next to its figures, and measure nothing")
	days := flags.String("day", "", "print the table of this file, which make day has written, and draw it into -picture")
	picture := flags.String("picture", "../docs/day.png", "where -day draws")
	table := flags.Bool("table", false, "print the table of what was measured, and measure nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("bench: %q: there are flags only", flags.Args())
	}
	if *days != "" {
		return showDays(*days, *picture)
	}
	if *plot || *table {
		return show(out, *plot)
	}
	if *parts != "" {
		set.Parts = strings.Split(*parts, ",")
		explicit := false
		flags.Visit(func(f *flag.Flag) { explicit = explicit || f.Name == "figures" })
		if !explicit {
			out.figures = ""
		}
	}
	if set.Keys, err = numbers("keys", *keys); err != nil {
		return err
	}
	if set.Receipts, err = numbers("receipts", *receipts); err != nil {
		return err
	}
	if set.Rounds < 1 || set.Window <= 0 || set.Pool < 1 || set.Rate <= 0 || set.Many < 1 {
		return errors.New("bench: -rounds, -window, -pool, -rate and -many must be positive")
	}
	return measure(ctx, set, out)
}

// numbers reads the list of a flag.
func numbers(name, list string) (all []int, err error) {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("bench: -%s %s: not a list of numbers", name, list)
		}
		all = append(all, n)
	}
	return all, nil
}

// measure runs the suite and writes what came of it. Results have all parts, so
// that of some only the table is printed.
func measure(ctx context.Context, set suite.Settings, out files) error {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // what contenders log is no result
	began := time.Now()
	samples, err := suite.Run(ctx, set)
	if err != nil {
		return err
	}
	r := &report.Run{
		Machine: report.ThisMachine(ctx),
		Took:    time.Since(began).Round(time.Second).String(),
		Rounds:  set.Rounds,
		Samples: samples,
	}
	if err := r.Print(os.Stdout); err != nil {
		return err
	}
	if out.figures != "" {
		if err := write(out.figures, func(w io.Writer) error { return json.NewEncoder(w).Encode(r) }); err != nil {
			return err
		}
	}
	if len(set.Parts) > 0 {
		return nil
	}
	return write(out.results, r.Markdown)
}

func write(file string, content func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return err
	}
	f, err := os.Create(file) //nolint:gosec // the developer's choice
	if err != nil {
		return err
	}
	return cmp.Or(content(f), f.Close())
}
