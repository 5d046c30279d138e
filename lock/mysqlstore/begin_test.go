package mysqlstore_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"runtime"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

// The context of the work's first statement ends when BEGIN was just answered. The connection does not
// go back to its pool in the transaction: what other code writes by it would be rolled back.
func TestWorkThatIsLeftAtItsBegin(t *testing.T) {
	t.Parallel()
	s := openShop(t)
	cfg, err := mysql.ParseDSN(mysqltest.Shared(t).DSN(s.name, ""))
	require.NoError(t, err)
	own := cfg.Clone()
	answered := make(chan struct{}, 100) // BEGIN was
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &beginning{Conn: conn, answered: answered}, err
	}
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store := mysqlstore.New(db, own)
	t.Cleanup(store.Close)
	const tries = 200
	for i := range tries {
		ctx, tx, err := store.Begin(t.Context(), "k", "t")
		require.NoError(t, err)
		within, cancel := context.WithCancel(ctx)
		left := make(chan struct{})
		go func() {
			defer close(left)
			<-answered
			for range i % 50 {
				runtime.Gosched()
			}
			cancel()
		}()
		_ = exec(within, "DO 1")
		<-left
		require.NoError(t, tx.Rollback(t.Context()))
		conn := must.Get(db.Conn(t.Context()))(t)
		must.Get(conn.ExecContext(t.Context(), insert, "by other code"))(t)
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the next transaction has a new connection
		_ = conn.Close()
	}
	require.Len(t, s.Orders(t), tries)
}

// beginning notes when BEGIN was answered.
type beginning struct {
	net.Conn

	answered chan struct{}
	begun    bool
}

func (c *beginning) Write(b []byte) (int, error) {
	c.begun = bytes.Contains(b, []byte("START TRANSACTION"))
	return c.Conn.Write(b)
}

func (c *beginning) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.begun {
		c.begun = false
		c.answered <- struct{}{}
	}
	return n, err
}
