package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// maxWork is how long an order may take.
const maxWork = 30 * time.Second

// maxLease is for how long the Locker holds a key at most, unless it is set
// otherwise.
const maxLease = 15 * time.Minute

// config has the settings of the flags and the environment.
type config struct {
	addr     string
	redis    []string
	postgres string // "" for none
	mysql    string // a DSN, "" for none
	sqlite   string // a file, "" for none
	router   string
	work     time.Duration
	lease    time.Duration
	budget   time.Duration
	cooldown time.Duration
	fencing  bool
	rerun    bool
	worker   bool   // places accepted orders
	tx       bool   // with postgres, mysql or sqlite
	policies string // a file, "" for none

	drain       time.Duration // how long running orders may take to end after a signal
	readTimeout time.Duration // how long a request may take to arrive
}

// errUsage says that the command line or the environment is wrong. The reason
// has been printed.
var errUsage = errors.New("wrong usage")

// parseConfig reads args, and the environment for flags that are not in args.
// It writes mistakes to stderr.
func parseConfig(args []string, getenv func(string) string, stderr io.Writer) (config, error) {
	cfg := config{drain: maxWork + 5*time.Second, readTimeout: 15 * time.Second}
	var abandoned string
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&cfg.addr, "addr", ":8080", "`address` to listen on; port 0 takes a free one")
	flags.Func("redis", "`URL` of a Redis that other processes share, or one of each of three or more independent masters that make a quorum, which keeps locks and no answers; "+
		"the embedded store if there is none", func(s string) error {
		cfg.redis = append(cfg.redis, s)
		return nil
	})
	flags.StringVar(&cfg.postgres, "postgres", "", "`URL` of a PostgreSQL that other processes share, for the orders too, which are committed with their receipts")
	flags.StringVar(&cfg.mysql, "mysql", "", "`DSN` of a MySQL or MariaDB that other processes share, user:password@tcp(host:3306)/desk, for the orders too, which are committed with their receipts")
	flags.StringVar(&cfg.sqlite, "sqlite", "", "`file` of SQLite for the orders too, which are committed with their receipts: the embedded store that survives a restart, "+
		"and other processes of this machine may share it")
	flags.BoolVar(&cfg.tx, "transaction", true, "with -postgres, -mysql or -sqlite: commit an order with its receipt; =false shows what that prevents")
	flags.BoolVar(&cfg.worker, "worker", false, "place the orders that were accepted with later=1, in addition: with -postgres those of all desks, else the desk's own")
	flags.StringVar(&cfg.router, "router", "chi", "chi or stdlib")
	flags.DurationVar(&cfg.work, "work", 50*time.Millisecond, "how long an order or a payment takes, up to 30s")
	flags.DurationVar(&cfg.lease, "lease", 30*time.Second, "how long a key stays taken when its process dies")
	flags.DurationVar(&cfg.budget, "budget", 500*time.Millisecond, "how long to wait for the store")
	flags.DurationVar(&cfg.cooldown, "cooldown", 0, "how long after an order the user has to wait for the next")
	flags.BoolVar(&cfg.fencing, "fencing", false, "number the leases and refuse orders under an older one than was seen")
	flags.StringVar(&abandoned, "abandoned", "refuse", "what becomes of an idempotent submission whose process vanished: refuse or rerun")

	flags.StringVar(&cfg.policies, "policies", "", "`file` with the guards of the routes, as in policies.json; -cooldown and -abandoned are in it")

	flags.VisitAll(func(f *flag.Flag) { f.Usage += "; or " + variable(f) })

	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return config{}, err
	}
	if err != nil {
		return config{}, errUsage // Parse has written it
	}
	err = errors.Join(fromEnvironment(flags, getenv), noArguments(flags), cfg.check(), cfg.setAbandoned(abandoned))
	if err != nil {
		// An error of stderr itself cannot be reported.
		_, _ = fmt.Fprintln(stderr, err)
		return config{}, errUsage
	}
	return cfg, nil
}

// variable returns the name of f's environment variable.
func variable(f *flag.Flag) string { return "LATCH_" + strings.ToUpper(f.Name) }

// fromEnvironment sets each flag that was not given from LATCH_<NAME>.
func fromEnvironment(flags *flag.FlagSet, getenv func(string) string) error {
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs []error
	flags.VisitAll(func(f *flag.Flag) {
		name := variable(f)
		value := getenv(name)
		if given[f.Name] || value == "" {
			return
		}
		values := []string{value}
		if f.Name == "redis" {
			values = strings.Fields(value)
		}
		for _, v := range values {
			if err := flags.Set(f.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("invalid value %q for %s: %w", v, name, err))
			}
		}
	})
	return errors.Join(errs...)
}

func noArguments(flags *flag.FlagSet) error {
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// check returns an error for settings with which the Locker would panic. It
// names the flags.
func (c config) check() error {
	switch {
	case c.postgres != "" && len(c.redis) > 0:
		return errors.New("-postgres and -redis exclude each other: the desk has its locks in one of them")
	case c.mysql != "" && (c.postgres != "" || c.sqlite != "" || len(c.redis) > 0):
		return errors.New("-mysql excludes -postgres, -sqlite and -redis: the desk has its locks in one of them")
	case c.sqlite != "" && (c.postgres != "" || len(c.redis) > 0):
		return errors.New("-sqlite excludes -postgres and -redis: the desk has its locks in one of them")
	case !c.database() && !c.tx:
		return errors.New("-transaction=false needs -postgres, -mysql or -sqlite: without one there are no transactions")
	case c.worker && !c.keepsJobs():
		return errors.New("-worker needs -postgres with its transactions, one -redis, or none: other stores keep no accepted orders")
	case len(c.redis) > 1 && len(c.redis)%2 == 0:
		return fmt.Errorf("-redis was given %d times: a quorum needs an odd number of independent masters, three or more", len(c.redis))
	case twice(c.redis) >= 0:
		return fmt.Errorf("-redis number %d was given before: a quorum needs masters that fail one by one", twice(c.redis)+1)
	case c.quorum() && c.fencing:
		return errors.New("-fencing needs a single -redis: several masters have no number that grows with every lease")
	case !slices.Contains([]string{"chi", "stdlib"}, c.router):
		return fmt.Errorf("-router %q: use chi or stdlib", c.router)
	case c.work < 0 || c.work > maxWork:
		return fmt.Errorf("-work %v: use 0 to %v", c.work, maxWork)
	case c.budget <= 0:
		return fmt.Errorf("-budget %v: must be positive", c.budget)
	case c.lease < 2*c.budget || c.lease > maxLease:
		return fmt.Errorf("-lease %v: use at least twice -budget (%v) and at most %v", c.lease, c.budget, maxLease)
	case c.cooldown < 0:
		return fmt.Errorf("-cooldown %v: must not be negative", c.cooldown)
	case c.policies != "" && c.cooldown > 0:
		return errors.New(`-cooldown together with -policies: write "cooldown" into the file`)
	}
	return nil
}

// quorum reports whether the desk runs over several independent masters.
func (c config) quorum() bool { return len(c.redis) > 1 }

// transactions reports whether orders are committed with their receipts.
func (c config) transactions() bool { return c.database() && c.tx }

// database reports whether the orders are in a database.
func (c config) database() bool { return c.postgres != "" || c.mysql != "" || c.sqlite != "" }

// twice returns the index of the first value that repeats an earlier one, or -1.
func twice(values []string) int {
	for i, v := range values {
		if slices.Contains(values[:i], v) {
			return i
		}
	}
	return -1
}

func (c *config) setAbandoned(policy string) error {
	switch policy {
	case "refuse", "rerun":
		c.rerun = policy == "rerun"
		if c.rerun && c.quorum() {
			return errors.New("-abandoned rerun needs a single -redis: several masters keep locks, and nothing of an idempotent submission")
		}
		if c.rerun && c.policies != "" {
			return errors.New(`-abandoned rerun together with -policies: write "rerun_abandoned" into the file`)
		}
		return nil
	default:
		return fmt.Errorf("-abandoned %q: use refuse or rerun", policy)
	}
}
