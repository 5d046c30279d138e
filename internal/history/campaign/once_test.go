//go:build unix

// Package campaign_test plays faults against orders in transactions of PostgreSQL, MariaDB or MySQL,
// and SQLite, and looks afterwards whether every order is there once.
package campaign_test

import (
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

var failoversFlag = flag.Int("campaign.failovers", -1, "how many failovers there are from a primary to its replica; -1: 6 of PostgreSQL and none of MariaDB")

func TestMain(m *testing.M) {
	if path := os.Getenv(fileVariable); path != "" {
		fmt.Fprintln(os.Stderr, serve(path, os.Getenv(twinVariable)))
		os.Exit(1)
	}
	once.Faults(200)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	// pgx is done with a connection whose server is silent after a quarter of a minute.
	goleak.VerifyTestMain(redistest.Main(mysqltest.Main(pgtest.Main(m))), goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"))
}

// shop is a database with its programs, and the campaign there.
type shop interface {
	once.Shop
	campaign() *once.Campaign
	plan() once.Plan
	rare() []string     // paths that the campaign has to take
	rests(t *testing.T) // looks at the database after the last order
}

// shops are databases. Campaigns over the ways to one server take its rare paths together.
var shops = []struct {
	name  string
	ways  []func(t *testing.T, twin string) shop
	twins []string
}{
	{"postgres", []func(*testing.T, string) shop{
		func(t *testing.T, twin string) shop { t.Helper(); return start(t, &postgres{}, twin) },
		func(t *testing.T, twin string) shop { t.Helper(); return start(t, &postgres{bounced: true}, twin) },
	}, names(postgresTwins)},
	{"mariadb", []func(*testing.T, string) shop{
		func(t *testing.T, twin string) shop { t.Helper(); return start(t, &mariadb{}, twin) },
	}, names(mariadbTwins)},
	{"sqlite", []func(*testing.T, string) shop{startFile}, names(sqliteTwins)},
}

func names[T any](of map[string]T) []string { return slices.Sorted(maps.Keys(of)) }

// Processes make the same few orders, and repeat each until it has its answer. Meanwhile exchanges
// with a server are lost, cut, delayed and delivered late, its sessions, the server itself and the
// processes are killed; processes on one file are killed and stopped at every step of an order, the
// disk is full, and other programs lock the file. Afterwards there is one row for each order that
// was answered, and one answer for every caller.
func TestOnce(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "injects hundreds of faults in real time")
	t.Parallel()
	for _, db := range shops {
		parallel.Run(t, db.name, func(t *testing.T) {
			var taken once.Counts
			var rare []string
			for i, open := range db.ways {
				s := open(t, "")
				c, plan := s.campaign(), s.plan()
				rare = s.rare()
				if i == len(db.ways)-1 {
					plan.More = func() bool { s.rests(t); return c.Misses(rare, &taken) }
				}
				c.Run(s, plan, *once.FaultsFlag/len(db.ways))
				require.Empty(t, c.Check(s))
				s.rests(t)
				once.Save(t, fmt.Sprint(db.name, "-", i+1), c.Report(s))
				c.Took(rare, &taken)
			}
			for _, path := range rare {
				require.Positive(t, taken.Get(path), "the campaign never went through %q", path)
			}
		})
	}
}

// The twins: the campaign finds each of them.
func TestOnceCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "runs a campaign for each planted fault")
	t.Parallel()
	for _, db := range shops {
		for _, twin := range db.twins {
			parallel.Run(t, db.name+"/"+twin, func(t *testing.T) {
				s := db.ways[0](t, twin)
				plan := s.plan()
				plan.Twin = true
				s.campaign().Run(s, plan, 3000)
				require.NotEmpty(t, s.campaign().Check(s), "%s was not found out", s.campaign().Report(s))
			})
		}
	}
}
