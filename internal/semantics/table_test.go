package semantics_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// row is one case of the table.
type row struct {
	name        string
	guard       guard         // nil: Idempotent by user and Idempotency-Key
	locker      []lock.Option // of both processes
	faulty      bool          // the link of the first process to the store can fail
	database    bool          // the store is a database in memory, in place of the others
	brief       bool          // what the first process claims has a lease of a millisecond at the store
	shortBudget bool          // the first process has a budget of a second, so that a store that is down does not take long
	impatient   bool          // it is to fail, and does not wait long for that
	early       func(c *run)  // what the handler does before it may stop
	handler     func(c *run)  // and then; nil: it creates an order
	steps       []step
	effects     int64  // how often the handler ran, in the end
	only        string // the one router that it makes sense with
	because     string // why
	practice    string // what others do, or ask for
	why         string // why the answer differs from that
}

// section is a part of the page.
type section struct {
	title string
	rows  []row
}

// table is the page, in its order.
func table() []section {
	all := []section{
		keySection(), identitySection(), fingerprintSection(), formSection(), methodSection(),
		replaySection(), statusSection(), privateSection(), keptSection(), runningSection(),
		endSection(), crashSection(), streamSection(), upstreamSection(), limitSection(), storeSection(), transactionSection(),
		refusalSection(), dedupeSection(), lockSection(), nestedSection(),
	}
	for i := range all {
		all[i].rows = append(all[i].rows, longRows(all[i].title)...)
	}
	return all
}

var byUser = keyfunc.Header("X-User-ID")

// idempotent returns the guard of rows that do not set another.
func idempotent(opts ...latch.IdempotentOption) guard {
	return func(l *lock.Locker) func(http.Handler) http.Handler {
		return latch.Idempotent(l, byUser, keyfunc.IdempotencyKey, opts...)
	}
}

func keyedBy(f keyfunc.Func, opts ...latch.IdempotentOption) guard {
	return func(l *lock.Locker) func(http.Handler) http.Handler { return latch.Idempotent(l, byUser, f, opts...) }
}

// execute runs r on one store behind one router.
func (r *row) execute(g guard, on routes, store lock.Store) (err error) {
	w := newWorld(r, g, on, store)
	defer func() {
		if closing := w.close(); err == nil && closing != nil {
			err = fmt.Errorf("at the end: %w", closing)
		}
	}()
	for i := range r.steps {
		s := &r.steps[i]
		if err := s.run(w, s); err != nil {
			sent, _ := s.words(i == 0)
			return fmt.Errorf("step %d, %s: %w", i+1, sent, err)
		}
	}
	if got := w.effects.Load(); got != r.effects {
		return fmt.Errorf("the handler ran %d times, want %d", got, r.effects)
	}
	return nil
}

func (r *row) guarded() guard {
	if r.guard == nil {
		return idempotent()
	}
	return r.guard
}

// routers are the routers on which every row is mounted.
var routers = map[string]routes{"stdlib": stdlib, "chi": chiRouter}

// TestTable runs every row over both stores, behind both routers. The four wait
// most of their time, so they run in parallel.
func TestTable(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	for _, s := range table() {
		for i := range s.rows {
			r := &s.rows[i]
			t.Run(s.title+"/"+r.name, func(t *testing.T) {
				t.Parallel()
				var wg sync.WaitGroup
				for name, on := range routers {
					if r.only != "" && r.only != name {
						continue
					}
					for backend, store := range r.stores(client) {
						wg.Go(func() {
							if err := r.execute(r.guarded(), on, store); err != nil {
								t.Errorf("%s, %s: %v", name, backend, err)
							}
						})
					}
				}
				wg.Wait()
			})
		}
	}
}

// stores returns the stores over which the row is run.
func (r *row) stores(client *redis.Client) map[string]lock.Store {
	if r.database {
		return map[string]lock.Store{"database": faketx.New()}
	}
	return map[string]lock.Store{"memory": memstore.New(), "Redis": redisStore(client)}
}

// redisStore is on a real server that all rows share, under its own keys.
func redisStore(client *redis.Client) lock.Store {
	return redisstore.New(client, redisstore.WithPrefix("test:"+uuid.NewString()+":"))
}

// TestRowsAreWhole: names are unique within a section, and a row that answers
// otherwise than others says why.
func TestRowsAreWhole(t *testing.T) {
	t.Parallel()
	count := 0
	for _, s := range table() {
		seen := make(map[string]bool)
		for _, r := range s.rows {
			count++
			name := s.title + ": " + r.name
			require.False(t, seen[r.name], "%s is there twice", name)
			seen[r.name] = true
			require.NotEmpty(t, r.steps, "%s lacks steps", name)
			require.NotEmpty(t, r.practice, "%s lacks practice: what others do", name)
			require.Equal(t, r.only == "", r.because == "", "%s needs because with only, and only with because", name)
		}
	}
	require.GreaterOrEqual(t, count, 150)
}

var errSecret = errors.New("secret-of-the-server")
