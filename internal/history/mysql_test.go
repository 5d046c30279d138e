package history_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
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
	return &wireWeather{dice: dice{rng: rng}, proxy: sqlproxy.MySQL(t, o.server.Addr(), nil), faults: mysqlFaults}
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

func (onMySQL) faults() []string { return mysqlFaults.names() }

// deadlines: a claim that comes late is one that the server has read in time, and has let wait.
func (onMySQL) deadlines() bool { return false }

var mysqlFaults = wireFaults{
	{"reply cut", 70, sqlproxy.Fault{Action: sqlproxy.CutReply}},
	{"reply lost, hangs", 20, sqlproxy.Fault{Action: sqlproxy.LoseReply}},
	{"reply late", 13, sqlproxy.Fault{Action: sqlproxy.DelayReply, Delay: 10 * time.Millisecond}},
	{"request lost, closed", 20, sqlproxy.Fault{Action: sqlproxy.CutRequest}},
	{"request held", 13, sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: 10 * time.Millisecond}},
	{"request held beyond its call", 33, sqlproxy.Fault{Action: sqlproxy.DelayRequest, Delay: patienceOfCall + 10*time.Millisecond}},
	{"server hears no end", 6, sqlproxy.Fault{Action: sqlproxy.Freeze}},
}
