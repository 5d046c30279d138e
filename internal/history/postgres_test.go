package history_test

import (
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/pgproxy"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// onPostgres is a database, with the table of a store.
type onPostgres struct{ url *url.URL }

func newPostgres(t *testing.T) onPostgres {
	t.Helper()
	u, err := url.Parse(pgtest.DatabaseURL(t))
	require.NoError(t, err)
	s, err := pgstore.Open(t.Context(), u.String())
	require.NoError(t, err)
	s.Close()
	return onPostgres{u}
}

func (p onPostgres) addr(*testing.T) string { return p.url.Host }

// at is the URL of the database for those who connect to addr.
func (p onPostgres) at(addr string) string {
	u := *p.url
	u.Host = addr
	return u.String()
}

func (p onPostgres) disturb(t *testing.T, rng *rand.Rand) weather {
	t.Helper()
	return &postgresWeather{dice: dice{rng: rng}, proxy: pgproxy.Start(t, p.url.Host, nil)}
}

func (p onPostgres) open(t *testing.T, addr string) store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), p.at(addr))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return postgresStore{s, p.at(addr)}
}

// postgresStore is a store of the database at url.
type postgresStore struct {
	*pgstore.Store
	url string
}

func (onPostgres) faults() (names []string) {
	for _, f := range postgresFaults {
		names = append(names, f.name)
	}
	return append(names, allLost)
}

// deadlines: a claim that comes late is one that the server has read in time, and has
// let wait.
func (onPostgres) deadlines() bool { return false }

// postgresFaults are the faults of statements that write, and how many of a thousand have each.
var postgresFaults = []struct {
	name     string
	permille int
	fault    pgproxy.Fault
}{
	{"reply lost, closed", 50, pgproxy.Fault{Action: pgproxy.LoseReplyAndCut}},
	{"reply lost, hangs", 20, pgproxy.Fault{Action: pgproxy.LoseReply}},
	{"reply cut", 20, pgproxy.Fault{Action: pgproxy.CutReply, Bytes: 7}},
	{"reply late", 13, pgproxy.Fault{Action: pgproxy.DelayReply, Delay: 10 * time.Millisecond}},
	{"request lost, closed", 20, pgproxy.Fault{Action: pgproxy.CutRequest}},
	{"request lost, hangs", 6, pgproxy.Fault{Action: pgproxy.LoseRequest}},
	{"request held", 13, pgproxy.Fault{Action: pgproxy.DelayRequest, Delay: 10 * time.Millisecond}},
	{"request held beyond its call", 33, pgproxy.Fault{Action: pgproxy.DelayRequest, Delay: patienceOfCall + 10*time.Millisecond}},
	{"server hears no end", 6, pgproxy.Fault{Action: pgproxy.Freeze}},
}

// postgresWeather is the faults of one history over PostgreSQL.
type postgresWeather struct {
	dice
	toll

	proxy *pgproxy.Proxy
}

func (w *postgresWeather) addr() string { return w.proxy.Addr() }

func (w *postgresWeather) begin() { w.proxy.Decide(w.decide) }

func (w *postgresWeather) decide(x *pgproxy.Exchange) pgproxy.Fault {
	if x.Cancel || !x.Contains("latch_entries") || strings.HasPrefix(strings.TrimSpace(x.SQL[0]), "SELECT") {
		return pgproxy.Fault{}
	}
	if w.darkens(&w.dice) {
		w.strike(allLost)
		return pgproxy.Fault{Action: pgproxy.LoseReply}
	}
	for _, f := range postgresFaults {
		if w.draw(f.permille) {
			w.strike(f.name)
			return f.fault
		}
	}
	return pgproxy.Fault{}
}

// end lets all pass from now on.
func (w *postgresWeather) end(c *counts) {
	w.proxy.Decide(nil)
	w.count(c)
}
