// Package campaign plays faults against work that runs in transactions of PostgreSQL, and
// looks afterwards whether every order is there once.
package campaign_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

var (
	seedFlag   = flag.Uint64("campaign.seed", 0, "seed of the campaign; 0 draws one")
	faultsFlag = flag.Int("campaign.faults", 500, "how many faults the campaign injects")
)

func TestMain(m *testing.M) {
	flag.Parse()
	// pgx is done with a connection whose server is silent after a quarter of a minute.
	goleak.VerifyTestMain(pgtest.Main(m), goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"))
}

// Eight processes order few things, again and again until each has its answer, while
// exchanges with the server are lost, cut, delayed and delivered late, its sessions and the
// server itself are killed, and the processes, too. Afterwards there is one row for each
// order that was answered, and one answer for every caller.
func TestOnce(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "injects hundreds of faults in real time")
	t.Parallel()
	var taken counts
	for _, name := range []string{"direct", "PgBouncer"} {
		t.Run(name, func(t *testing.T) {
			c := start(t, name == "PgBouncer", nil)
			if c.bounced {
				c.more = func() bool { return c.misses(&taken) }
			}
			c.run(*faultsFlag / 2)
			require.Empty(t, c.violations(c.orders()))
			report := c.report()
			t.Log("\n" + report)
			if dir := os.Getenv("TEST_ARTIFACTS"); dir != "" {
				require.NoError(t, os.MkdirAll(dir, 0o750))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "once-pg-"+name+".txt"), []byte(report), 0o600))
			}
			for _, path := range rarePaths {
				if c.paths.get(path) > 0 {
					taken.add(path)
				}
			}
		})
	}
	for _, path := range rarePaths {
		require.Positive(t, taken.get(path), "the campaign never went through %q", path)
	}
}

// misses reports whether there is a rare path that neither c nor what was before it has
// taken.
func (c *campaign) misses(before *counts) bool {
	for _, path := range rarePaths {
		if c.paths.get(path)+before.get(path) == 0 {
			return true
		}
	}
	return false
}

// The twins: the campaign finds each of them.
func TestOnceCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "runs a campaign for each planted fault")
	for name, broken := range twins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, false, broken)
			c.until = func() bool { return len(c.inRows(c.orders())) > 0 }
			c.run(3000)
			require.NotEmpty(t, c.violations(c.orders()), "%s was not found out", c.report())
		})
	}
}

func (c *campaign) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: go test ./internal/campaign -args -campaign.seed %d\n", c.seed, c.seed)
	fmt.Fprintf(&b, "%v: %d faults, %d orders, %d answers, %d of them first ones\n", time.Since(c.began).Round(time.Second),
		c.faults.total(), len(c.orders()), c.answers.total(), c.answers.get("first"))
	c.faults.write(&b)
	b.WriteString("paths\n")
	c.paths.write(&b)
	fmt.Fprintf(&b, "violations: %d\n", len(c.violations(c.orders())))
	return b.String()
}
