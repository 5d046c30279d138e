package mysqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/mysqlstore"
)

// sent returns a shop, and the statements that were sent since the last call.
func sent(t *testing.T) (s *shop, since func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	s, _ = behind(t, mysqltest.Shared(t), func(x *sqlproxy.Exchange) sqlproxy.Fault {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, x.SQL[0])
		return sqlproxy.Fault{}
	})
	return s, func() []string {
		mu.Lock()
		defer mu.Unlock()
		was := all
		all = nil
		return was
	}
}

func TestRoundTrips(t *testing.T) {
	t.Parallel()
	s, since := sent(t)
	l := sqlshop.Locker(t, s.store)
	place := func(key string) {
		_, _, err := l.Once(t.Context(), key, nil, func(ctx context.Context) ([]byte, error) {
			return nil, exec(ctx, "INSERT INTO orders (name) VALUES ('tea')")
		})
		require.NoError(t, err)
	}
	place("first") // dials
	for key, want := range map[string]int{"first": 1, "second": map[bool]int{true: 5, false: 7}[isMariaDB(t)]} {
		if key == "first" {
			place(key) // the next claim reads, since this one has found a receipt
		} else {
			place("another")
		}
		since()
		place(key)
		trips := since()
		require.Len(t, trips, want, "%s:\n%s", key, strings.Join(trips, "\n"))
	}
}

// Claims that come together share their statements. One that the server refuses fails alone.
func TestClaimsThatComeTogether(t *testing.T) {
	t.Parallel()
	s, since := sent(t)
	const claims, refused = 100, 50
	_, err := s.store.Claim(t.Context(), "taken", lock.Claim{Token: "its", Attempt: 1, Lease: time.Minute}) // dials
	require.NoError(t, err)
	since()
	var all sync.WaitGroup
	for i := range claims {
		all.Go(func() {
			c := lock.Claim{Token: fmt.Sprint("of ", i), Attempt: 1, Lease: time.Minute}
			key := fmt.Sprint(i)
			switch {
			case i == refused:
				c.Fingerprint = make([]byte, 1<<16) // a byte more than the column takes
			case i%10 == 1:
				key = "taken"
			}
			e, err := s.store.Claim(context.WithoutCancel(t.Context()), key, c)
			switch {
			case i == refused:
				if err == nil {
					t.Error("it was granted")
				}
			case err != nil:
				t.Error(i, err)
			case (e.Token == c.Token) != (key != "taken"):
				t.Errorf("%d: %s is of %s", i, key, e.Token)
			}
		})
	}
	all.Wait()
	require.Less(t, len(since()), claims)
	var rows int
	require.NoError(t, s.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM latch_entries").Scan(&rows))
	require.Equal(t, claims-claims/10, rows) // one more is taken, one is refused
}

// The entry changes after a takeover has read that its lease is over.
func TestTakeoverThatMeetsAChange(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		linger  time.Duration
		changes func(ctx context.Context, s *mysqlstore.Store, holder lock.Claim) (bool, error)
		found   lock.State
	}{
		"renewal": {time.Hour, func(ctx context.Context, s *mysqlstore.Store, holder lock.Claim) (bool, error) {
			holder.Lease = time.Hour
			return s.Renew(ctx, "k", holder)
		}, lock.Held},
		"receipt": {time.Hour, func(ctx context.Context, s *mysqlstore.Store, holder lock.Claim) (bool, error) {
			return s.Settle(ctx, "k", holder, []byte("receipt"), time.Hour)
		}, lock.Settled},
		"end": {3 * time.Second, func(ctx context.Context, s *mysqlstore.Store, _ lock.Claim) (bool, error) {
			for {
				if e, err := s.Get(ctx, "k"); err != nil || e.State == lock.Free {
					return true, err
				}
			}
		}, lock.Free},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			s, p := behind(t, mysqltest.Shared(t), nil)
			other := open(t, mysqltest.Shared(t).DSN(s.name, ""))
			holder := lock.Claim{Token: "its", Attempt: 1, Lease: time.Millisecond, Linger: tt.linger}
			must.Entry(t)(other.Claim(t.Context(), "k", holder))
			sqlshop.Await(t, other, "k", lock.Abandoned)
			p.Decide(func(x *sqlproxy.Exchange) sqlproxy.Fault {
				if x.Contains("SET token =") {
					if ok, err := tt.changes(context.WithoutCancel(t.Context()), other, holder); !ok || err != nil {
						t.Error(ok, err)
					}
				}
				return sqlproxy.Fault{}
			})
			e := must.Entry(t)(s.store.Claim(t.Context(), "k", lock.Claim{Token: "another", Attempt: 2, Lease: time.Minute, Replaces: "its"}))
			require.Equal(t, tt.found, e.State)
			require.NotEqual(t, "another", e.Token)
		})
	}
}

// A claim waits for a connection as long as its own caller, and not as others do.
func TestClaimsWaitAsLongAsTheirCallers(t *testing.T) {
	t.Parallel()
	server := mysqltest.Shared(t)
	cfg := must.Get(mysql.ParseDSN(server.DatabaseDSN(t)))(t)
	require.NoError(t, open(t, cfg.FormatDSN()).Migrate(t.Context()))
	dialled, reachable := make(chan struct{}, 10), make(chan struct{})
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled <- struct{}{}
		select {
		case <-reachable:
			return new(net.Dialer).DialContext(ctx, network, addr)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	db := must.Get(sql.Open("mysql", cfg.FormatDSN()))(t)
	defer db.Close()
	store := mysqlstore.New(db, cfg)
	defer store.Close()
	var all sync.WaitGroup
	claim := func(key string, within time.Duration) (result *error) {
		result = new(error)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within)
			defer cancel()
			if _, *result = store.Claim(ctx, key, lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute}); within < time.Second {
				close(reachable)
			}
		})
		return result
	}
	hurried := claim("k", 100*time.Millisecond)
	<-dialled
	patient := claim("other", time.Minute)
	all.Wait()
	require.ErrorIs(t, *hurried, context.DeadlineExceeded)
	require.ErrorIs(t, *hurried, lock.ErrNotApplied)
	require.NoError(t, *patient)
}

// A fenced claim is a transaction: if it fails before its COMMIT was sent, it has certainly no
// effect. The twin's COMMIT gets no answer.
func TestClaimThatWasNotCommitted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		struck  string
		certain bool
	}{
		"its key is not read":        {"WHERE lock_key IN", true},
		"its fence is not drawn":     {"_fence` VALUES", true},
		"its fence is not written":   {"SET fence", true},
		"its COMMIT is not answered": {"COMMIT", false},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			s, proxy := behind(t, mysqltest.Shared(t), nil)
			proxy.Decide(func(x *sqlproxy.Exchange) (f sqlproxy.Fault) {
				if x.Contains(tt.struck) {
					f.Action = sqlproxy.CutReply
				}
				return f
			})
			_, err := s.store.Claim(t.Context(), "k", lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Fenced: true})
			proxy.Decide(nil)
			require.Error(t, err)
			require.Equal(t, tt.certain, errors.Is(err, lock.ErrNotApplied), "%v", err)
			require.Eventually(t, func() bool { // after the server has noticed the end of the connection
				e, err := s.store.Get(t.Context(), "k")
				return err == nil && (e.State == lock.Free) == tt.certain
			}, 10*time.Second, 10*time.Millisecond)
		})
	}
}
