package mysqlstore_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/mysqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

// Callers repeat their orders at three lockers until they are answered, while COMMITs or their
// answers are lost, come late or meet a server that is killed. Each order is committed once, and
// has one answer.
func TestStormOfOrders(t *testing.T) {
	t.Parallel()
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "plays faults for 20 s")
	const keys, callers, kills = 150, 3, 2
	server := mysqltest.Start(t)
	var faults atomic.Int64
	decide := func(statement string) mysqlproxy.Fault {
		if !strings.HasPrefix(statement, commit) || mathrand.IntN(5) > 0 {
			return mysqlproxy.Fault{}
		}
		faults.Add(1)
		fates := []mysqlproxy.Action{mysqlproxy.LoseReply, mysqlproxy.CutReply, mysqlproxy.DelayRequest, mysqlproxy.LoseRequest, mysqlproxy.CutRequest}
		return mysqlproxy.Fault{Action: fates[mathrand.IntN(len(fates))], Delay: late}
	}
	s := shopOf(t, server, server.Addr())
	var lockers []*lock.Locker
	for range 3 {
		addr := mysqlproxy.Start(t, server.Addr(), decide).Addr()
		store := open(t, through(server, server.DSN(s.name, "", "interpolateParams=true"), addr))
		lockers = append(lockers, lockerOver(t, store, lock.WithLease(3*time.Second), lock.WithBudget(time.Second)))
	}

	var placed atomic.Int64
	answers := make([]sync.Map, keys)
	var all sync.WaitGroup
	queue := make(chan int)
	for range 8 {
		all.Go(func() {
			for key := range queue {
				for call := range callers {
					answer, err := insist(t.Context(), lockers[(key+call)%len(lockers)], fmt.Sprintf("order%d", key))
					if err != nil {
						t.Error(err)
						continue
					}
					answers[key].Store(answer, true)
				}
				placed.Add(1)
			}
		})
	}
	all.Go(func() {
		for i := range kills {
			for placed.Load() < int64((i+1)*keys/(kills+1)) && t.Context().Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			server.Restart(t)
		}
	})
	for key := range keys {
		queue <- key
	}
	close(queue)
	all.Wait()

	time.Sleep(late) // the last COMMITs have come
	rows := make(map[string]int)
	for _, name := range s.orders(t) {
		rows[name]++
	}
	require.Len(t, rows, keys)
	for key := range keys {
		require.Equal(t, 1, rows[fmt.Sprintf("order%d", key)], "order%d", key)
		n := 0
		answers[key].Range(func(_, _ any) bool { n++; return true })
		require.Equal(t, 1, n, "answers to order%d", key)
	}
	t.Logf("%d orders, %d faults of COMMIT, %d kills of the server", keys, faults.Load(), kills)
	require.Greater(t, faults.Load(), int64(keys/10))
}

// A receipt that is left after the COMMIT of the work is not enough: an order whose COMMIT had
// no answer is there twice.
func TestTwinWithTheReceiptOutside(t *testing.T) {
	t.Parallel()
	testmain.SkipIn(t, testmain.Short, "plays faults for 5 s")
	server := mysqltest.Shared(t)
	s := shopOf(t, server, server.Addr())
	for i := range 5 {
		addr := mysqlproxy.Start(t, server.Addr(), mysqlproxy.First("COMMIT", mysqlproxy.Fault{Action: mysqlproxy.CutReply})).Addr()
		store := open(t, through(server, server.DSN(s.name, "", "interpolateParams=true"), addr))
		_, err := insist(t.Context(), lockerOver(t, outside{store}), fmt.Sprintf("order%d", i))
		require.NoError(t, err)
	}
	require.Greater(t, len(s.orders(t)), 5)
}

// outside is a store that leaves receipts outside of the work's transaction.
type outside struct{ *mysqlstore.Store }

func (o outside) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	tx, err := o.DB().BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, nil, err
	}
	return mysqlstore.WithTx(ctx, tx), outsideTx{o.Store, tx, key, token}, nil
}

type outsideTx struct {
	store      *mysqlstore.Store
	tx         *sql.Tx
	key, token string
}

func (o outsideTx) Settle(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
	defer func() { _ = o.tx.Rollback() }() // gives the connection back
	if _, err := o.tx.ExecContext(ctx, "COMMIT AND NO CHAIN"); err != nil {
		return false, err
	}
	return o.store.Settle(ctx, o.key, lock.Claim{Token: o.token}, receipt, keep)
}

func (o outsideTx) Outcome(ctx context.Context) (bool, error) {
	e, err := o.store.Get(ctx, o.key)
	return e.State == lock.Settled && e.Token == o.token, err
}

func (o outsideTx) Rollback(context.Context) error { return o.tx.Rollback() }

// insist calls Once until the order is answered.
func insist(ctx context.Context, l *lock.Locker, name string) (answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		var receipt []byte
		receipt, _, err = l.Once(ctx, name, nil, func(ctx context.Context) ([]byte, error) {
			return []byte(rand.Text()), exec(ctx, insert, name)
		})
		if err == nil {
			return string(receipt), nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
