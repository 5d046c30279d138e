package history_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/mysqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

// onMySQL is a database of MariaDB or MySQL, with the tables of a store.
type onMySQL struct {
	server *mysqltest.Server
	name   string
}

func newMySQL(t *testing.T) onMySQL {
	t.Helper()
	o := onMySQL{server: mysqltest.Shared(t)}
	o.name = o.server.Database(t)
	return o
}

func (o onMySQL) addr(*testing.T) string { return o.server.Addr() }

func (o onMySQL) disturb(t *testing.T, rng *rand.Rand) weather {
	t.Helper()
	return &mysqlWeather{dice: dice{rng: rng}, proxy: mysqlproxy.Start(t, o.server.Addr(), nil)}
}

func (o onMySQL) open(t *testing.T, addr string) store {
	t.Helper()
	dsn := o.server.DSN(o.name, "")
	s, err := mysqlstore.Open(t.Context(), strings.Replace(dsn, o.server.Addr(), addr, 1))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return mysqlStore{s, dsn}
}

// mysqlStore is a store of the database of a DSN.
type mysqlStore struct {
	*mysqlstore.Store
	dsn string
}

func (onMySQL) faults() (names []string) {
	for _, f := range mysqlFaults {
		names = append(names, f.name)
	}
	return append(names, allLost)
}

// deadlines: a claim that comes late is one that the server has read in time, and has let wait.
func (onMySQL) deadlines() bool { return false }

// mysqlFaults are the faults of statements that write, and of how many of a thousand.
var mysqlFaults = []struct {
	name     string
	permille int
	fault    mysqlproxy.Fault
}{
	{"reply cut", 70, mysqlproxy.Fault{Action: mysqlproxy.CutReply}},
	{"reply lost, hangs", 20, mysqlproxy.Fault{Action: mysqlproxy.LoseReply}},
	{"reply late", 13, mysqlproxy.Fault{Action: mysqlproxy.DelayReply, Delay: 10 * time.Millisecond}},
	{"request lost, closed", 20, mysqlproxy.Fault{Action: mysqlproxy.CutRequest}},
	{"request held", 13, mysqlproxy.Fault{Action: mysqlproxy.DelayRequest, Delay: 10 * time.Millisecond}},
	{"request held beyond its call", 33, mysqlproxy.Fault{Action: mysqlproxy.DelayRequest, Delay: patienceOfCall + 10*time.Millisecond}},
	{"server hears no end", 6, mysqlproxy.Fault{Action: mysqlproxy.Freeze}},
}

// mysqlWeather is the faults of one history over MariaDB or MySQL.
type mysqlWeather struct {
	dice
	toll

	proxy *mysqlproxy.Proxy
}

func (w *mysqlWeather) addr() string { return w.proxy.Addr() }

func (w *mysqlWeather) begin() { w.proxy.Decide(w.decide) }

func (w *mysqlWeather) decide(statement string) mysqlproxy.Fault {
	if statement != "COMMIT" && !strings.Contains(statement, "latch_entries") || strings.HasPrefix(statement, "SELECT") {
		return mysqlproxy.Fault{}
	}
	if w.darkens(&w.dice) {
		w.strike(allLost)
		return mysqlproxy.Fault{Action: mysqlproxy.LoseReply}
	}
	for _, f := range mysqlFaults {
		if w.draw(f.permille) {
			w.strike(f.name)
			return f.fault
		}
	}
	return mysqlproxy.Fault{}
}

// end lets all pass from now on.
func (w *mysqlWeather) end(c *counts) {
	w.proxy.Decide(nil)
	w.count(c)
}
