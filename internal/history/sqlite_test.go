package history_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// onSQLite is a file, on which each store is like one of another process. It has no server and
// no wire: faults strike the calls of a store.
type onSQLite struct {
	path     string
	weathers *sync.Map // of histories, by what addr of the weather returns
}

func newSQLite(t *testing.T) onSQLite {
	t.Helper()
	return onSQLite{filepath.Join(t.TempDir(), "history.db"), new(sync.Map)}
}

func (o onSQLite) addr(*testing.T) string { return o.path }

func (o onSQLite) disturb(t *testing.T, rng *rand.Rand) weather {
	t.Helper()
	w := &sqliteWeather{dice: dice{rng: rng}, t: t, path: o.path, over: make(chan struct{})}
	w.name = o.path + "?" + strconv.FormatInt(opened.Add(1), 10)
	o.weathers.Store(w.name, w)
	return w
}

func (o onSQLite) open(t *testing.T, addr string) store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), o.path)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	if w, is := o.weathers.Load(addr); is {
		return disturbedStore{s, w.(*sqliteWeather)}
	}
	return s
}

const (
	callerLeaves = "caller leaves"
	callHeld     = "call held"
	callLate     = "call held beyond its caller"
	replyLost    = "reply lost"
	fileLocked   = "file of the claims locked by another program"
)

func (onSQLite) faults() []string {
	return []string{callerLeaves, callHeld, callLate, replyLost, fileLocked, allLost}
}

// deadlines: a call that a fault holds comes as late as the fault will have it.
func (onSQLite) deadlines() bool { return false }

// sqliteWeather is the faults of one history over SQLite.
type sqliteWeather struct {
	dice
	toll

	t          *testing.T
	name, path string

	over  chan struct{} // closed at the end
	late  sync.WaitGroup
	begun atomic.Bool
}

func (w *sqliteWeather) addr() string { return w.name }

func (w *sqliteWeather) begin() {
	w.begun.Store(true)
	claims, err := sql.Open("sqlite", "file:"+w.path+"-latch")
	require.NoError(w.t, err)
	w.late.Go(func() {
		defer claims.Close()
		w.lockFile(claims)
	})
}

// lockFile has another program lock the file of the claims now and then, for up to twice as long
// as a call waits.
func (w *sqliteWeather) lockFile(claims *sql.DB) {
	often := time.NewTicker(100 * time.Millisecond)
	defer often.Stop()
	claims.SetMaxOpenConns(1)
	for {
		select {
		case <-w.over:
			return
		case <-often.C:
		}
		if !w.draw(300) {
			continue
		}
		if _, err := claims.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err == nil {
			w.strike(fileLocked)
			w.mu.Lock()
			d := time.Duration(w.rng.Int64N(int64(2 * patienceOfCall)))
			w.mu.Unlock()
			time.Sleep(d)
		}
		_, _ = claims.ExecContext(context.Background(), "ROLLBACK")
	}
}

func (w *sqliteWeather) end(c *counts) {
	w.begun.Store(false)
	close(w.over)
	w.late.Wait()
	w.count(c)
}

// fault returns the fault of the next call, "" if there is none.
func (w *sqliteWeather) fault() string {
	if !w.begun.Load() {
		return ""
	}
	if w.darkens(&w.dice) {
		return allLost
	}
	for _, f := range []struct {
		name     string
		permille int
	}{{callerLeaves, 60}, {callHeld, 20}, {callLate, 33}, {replyLost, 80}} {
		if w.draw(f.permille) {
			return f.name
		}
	}
	return ""
}

var errNoReply = errors.New("the reply is lost")

// disturbedStore is a store whose calls meet faults.
type disturbedStore struct {
	*sqlitestore.Store

	w *sqliteWeather
}

func meets[T any](ctx context.Context, s disturbedStore, call func(ctx context.Context) (T, error)) (T, error) {
	var none T
	fault := s.w.fault()
	if fault != "" {
		s.w.strike(fault)
	}
	switch fault {
	case callerLeaves:
		s.w.mu.Lock()
		d := time.Duration(s.w.rng.Int64N(int64(2 * time.Millisecond)))
		s.w.mu.Unlock()
		brief, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		return call(brief)
	case callHeld:
		time.Sleep(10 * time.Millisecond)
	case callLate:
		s.w.late.Go(func() {
			time.Sleep(patienceOfCall + 10*time.Millisecond)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patienceOfCall/2)
			defer cancel()
			_, _ = call(ctx)
		})
		<-ctx.Done()
		return none, context.Cause(ctx)
	case replyLost, allLost:
		_, _ = call(ctx)
		if fault == allLost {
			<-ctx.Done()
		}
		return none, errNoReply
	}
	return call(ctx)
}

func (s disturbedStore) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return meets(ctx, s, func(ctx context.Context) (lock.Entry, error) { return s.Store.Claim(ctx, key, c) })
}

func (s disturbedStore) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return meets(ctx, s, func(ctx context.Context) (bool, error) { return s.Store.Renew(ctx, key, c) })
}

func (s disturbedStore) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return meets(ctx, s, func(ctx context.Context) (bool, error) { return s.Store.Settle(ctx, key, c, receipt, keep) })
}

func (s disturbedStore) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return meets(ctx, s, func(ctx context.Context) (bool, error) { return s.Store.Release(ctx, key, c) })
}

func (s disturbedStore) Get(ctx context.Context, key string) (lock.Entry, error) {
	return meets(ctx, s, func(ctx context.Context) (lock.Entry, error) { return s.Store.Get(ctx, key) })
}

func (s disturbedStore) Forget(ctx context.Context, key, token string) (bool, error) {
	return meets(ctx, s, func(ctx context.Context) (bool, error) { return s.Store.Forget(ctx, key, token) })
}
