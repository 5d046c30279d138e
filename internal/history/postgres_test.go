package history_test

import (
	"math/rand/v2"
	"net/url"
	"sync"
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
	return &postgresWeather{dice: dice{rng: rng}, proxy: pgproxy.Start(t, p.url.Host, nil), struck: map[string]int{}}
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

// postgresFaults are what happens to statements that write, and to how many of a thousand.
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

const (
	allLost = "all replies lost"
	// darkTime is for how long no statement gets a reply, now and then: enough for a
	// Locker to give up.
	darkTime     = budget + patienceOfCall
	darkPermille = 3
)

// postgresWeather is the faults of one history over PostgreSQL.
type postgresWeather struct {
	dice

	proxy *pgproxy.Proxy

	counting sync.Mutex
	struck   map[string]int
	dark     time.Time // until then
	darkened bool
}

func (w *postgresWeather) addr() string { return w.proxy.Addr() }

func (w *postgresWeather) begin() { w.proxy.Decide(w.decide) }

func (w *postgresWeather) decide(x *pgproxy.Exchange) pgproxy.Fault {
	if x.Cancel || !x.Contains("latch_entries") || x.Begins("SELECT") {
		return pgproxy.Fault{}
	}
	if w.darkens() {
		return w.strike(allLost, pgproxy.Fault{Action: pgproxy.LoseReply})
	}
	for _, f := range postgresFaults {
		if w.draw(f.permille) {
			return w.strike(f.name, f.fault)
		}
	}
	return pgproxy.Fault{}
}

// darkens reports whether all replies are lost now, which is so once in some histories.
func (w *postgresWeather) darkens() bool {
	begins := w.draw(darkPermille)
	w.counting.Lock()
	defer w.counting.Unlock()
	if begins && !w.darkened {
		w.dark, w.darkened = time.Now().Add(darkTime), true
	}
	return time.Now().Before(w.dark)
}

func (w *postgresWeather) strike(name string, f pgproxy.Fault) pgproxy.Fault {
	w.counting.Lock()
	defer w.counting.Unlock()
	w.struck[name]++
	return f
}

// end lets all pass from now on.
func (w *postgresWeather) end(c *counts) {
	w.proxy.Decide(nil)
	w.counting.Lock()
	defer w.counting.Unlock()
	for name, n := range w.struck {
		c.add("faults", name, n)
	}
}
