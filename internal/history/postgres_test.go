package history_test

import (
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/lock/pgstore"
)

// onPostgres is a database, with the table of a store.
type onPostgres struct{ url *url.URL }

func newPostgres(t *testing.T) onPostgres {
	t.Helper()
	u := must.Get(url.Parse(pgtest.DatabaseURL(t)))(t)
	must.Get(pgstore.Open(t.Context(), u.String()))(t).Close()
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
	return &wireWeather{dice: dice{rng: rng}, proxy: sqlproxy.Postgres(t, p.url.Host, nil)}
}

func (p onPostgres) open(t *testing.T, addr string) store {
	t.Helper()
	s := must.Get(pgstore.Open(t.Context(), p.at(addr)))(t)
	t.Cleanup(s.Close)
	return s
}

func (onPostgres) faults() []string { return postgresFaults.names() }

// deadlines: a claim that comes late is one that the server has read in time, and has
// let wait.
func (onPostgres) deadlines() bool { return false }

var postgresFaults = wireFaults{
	{"reply lost, closed", 50, sqlproxy.Fault{Action: sqlproxy.LoseReplyAndCut}},
	{"reply lost, hangs", 20, sqlproxy.Fault{Action: sqlproxy.LoseReply}},
	{"reply cut", 20, sqlproxy.Fault{Action: sqlproxy.CutReply, Bytes: 7}},
	{"reply late", 13, sqlproxy.Fault{Action: sqlproxy.DelayReply, Delay: 10 * time.Millisecond}},
	{"request lost, closed", 20, sqlproxy.Fault{Action: sqlproxy.CutRequest}},
	{"request lost, hangs", 6, sqlproxy.Fault{Action: sqlproxy.LoseRequest}},
	{"request held", 13, sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: 10 * time.Millisecond}},
	{"request held beyond its call", 33, sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: patienceOfCall + 10*time.Millisecond}},
	{"server hears no end", 6, sqlproxy.Fault{Action: sqlproxy.Freeze}},
}

// wireFaults are the faults of statements that write, and how many of a thousand have each.
type wireFaults []struct {
	name     string
	permille int
	fault    sqlproxy.Fault
}

func (fs wireFaults) names() (names []string) {
	for _, f := range fs {
		names = append(names, f.name)
	}
	return names
}

// wireWeather is the faults of one history over a server of SQL.
type wireWeather struct {
	dice

	proxy  *sqlproxy.Proxy
	counts *once.Counts
}

func (w *wireWeather) addr() string { return w.proxy.Addr() }

func (w *wireWeather) begin(c *once.Counts) {
	w.counts = c
	w.proxy.Decide(w.decide)
}

func (w *wireWeather) decide(x *sqlproxy.Exchange) sqlproxy.Fault {
	if x.Cancel || len(x.SQL) == 0 || x.Begins("SELECT") || x.SQL[0] != "COMMIT" && !x.Contains("latch_entries") {
		return sqlproxy.Fault{}
	}
	for _, f := range postgresFaults {
		if w.draw(f.permille) {
			w.counts.Add("fault: " + f.name)
			return f.fault
		}
	}
	return sqlproxy.Fault{}
}

func (w *wireWeather) end() { w.proxy.Decide(nil) }
