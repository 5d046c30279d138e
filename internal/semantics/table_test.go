package semantics_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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
	server := redistest.Shared(t)
	for _, s := range table() {
		for i := range s.rows {
			r := &s.rows[i]
			parallel.Run(t, s.title+"/"+r.name, func(t *testing.T) {
				var wg sync.WaitGroup
				for name, on := range routers {
					if r.only != "" && r.only != name {
						continue
					}
					for backend, store := range r.stores(t, server) {
						wg.Go(func() {
							assert.NoError(t, r.execute(r.guarded(), on, store), "%s, %s", name, backend)
						})
					}
				}
				wg.Wait()
			})
		}
	}
}

// stores returns the stores over which the row is run.
func (r *row) stores(t *testing.T, server *redistest.Server) map[string]lock.Store {
	t.Helper()
	if r.database {
		return map[string]lock.Store{"database": faketx.New()}
	}
	own := redisstore.WithPrefix("test:" + uuid.NewString() + ":") // on a real server that all rows share
	redis := must.Get(redisstore.Open(t.Context(), server.URL(), redisstore.WithoutCheck(), own))(t)
	t.Cleanup(func() { assert.NoError(t, redis.Close()) })
	return map[string]lock.Store{"memory": memstore.New(), "Redis": redis}
}

// Names are unique within a section, and a row that answers otherwise than others says why.
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

func TestMain(m *testing.M) {
	slog.SetDefault(quiet) // hints at wrong mounting, of guards that are mounted wrongly here
	// chi refuses methods that it does not know. No standard names BOOKING.
	for _, method := range []string{"QUERY", "PROPFIND", "REPORT", "SEARCH", "BOOKING"} {
		chi.RegisterMethod(method)
	}
	goleak.VerifyTestMain(redistest.Main(m))
}

// bare guards nothing.
func bare(*lock.Locker) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler { return next }
}

// marking is a guard that is often written by hand: SET NX on the key, and 409 for every later
// request. It keeps, compares and frees nothing.
func marking(*lock.Locker) func(http.Handler) http.Handler {
	var seen sync.Map
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, taken := seen.LoadOrStore(r.Header.Get("Idempotency-Key"), true); taken {
				w.WriteHeader(http.StatusConflict)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// caching keeps every answer by the key alone: status, all headers and body. It
// looks first and stores afterwards, and compares nothing.
func caching(*lock.Locker) func(http.Handler) http.Handler {
	var mu sync.Mutex
	kept := make(map[string]*httptest.ResponseRecorder)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key := r.Header.Get("Idempotency-Key")
			mu.Lock()
			rec, again := kept[key]
			mu.Unlock()
			if !again {
				rec = httptest.NewRecorder()
				next.ServeHTTP(rec, r)
				mu.Lock()
				kept[key] = rec
				mu.Unlock()
			} else {
				w.Header().Set("Idempotent-Replayed", "true")
			}
			maps.Copy(w.Header(), rec.Header())
			w.WriteHeader(rec.Code)
			_, _ = w.Write(rec.Body.Bytes())
		})
	}
}

// TestWrongGuardsFail is the twin of TestTable: guards that are wrong in a known way fail in the rows that are about it.
func TestWrongGuardsFail(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		guard guard
		most  int // of all rows, how many may pass
		fails []string
	}{
		"none": {bare, 80, []string{
			"The key/in quotes, then bare", "The key/missing", "The answer again/a repeat", "While the first runs/a duplicate",
			"Limits/a request over it", "`Lock`: one at a time/held", "`Dedupe`: without a key/the same again",
		}},
		"a mark": {marking, 80, []string{
			"The key/in quotes, then bare", "The answer again/a repeat", "The same key for another request/another body",
			"Which answers are kept/`500`", "How the handler ends/panic", "How long/the time is over", "Whose request, and for what/another user",
		}},
		"a cache": {caching, 147, []string{
			"Whose request, and for what/another user", "Whose request, and for what/another path", "The same key for another request/another body",
			"Which answers are kept/`500`", "While the first runs/a duplicate",
			"What is for the first client alone/`Set-Cookie`", "Streams and taken connections/a protocol upgrade", "The answer again/a repeat in another process",
		}},
	}
	for name, tt := range tests {
		parallel.Run(t, name, func(t *testing.T) {
			failed, passed := verdicts(tt.guard)
			for _, row := range tt.fails {
				require.Contains(t, failed, row)
			}
			require.LessOrEqual(t, len(passed), tt.most, "these rows pass: %q", passed)
		})
	}
}

// verdicts runs the whole table with g in place of every guard.
func verdicts(g guard) (failed, passed []string) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for _, s := range table() {
		for i := range s.rows {
			r := &s.rows[i]
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				r.impatient = true
				store := lock.Store(memstore.New())
				if r.database {
					store = faketx.New()
				}
				err := r.execute(g, stdlib, store)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = append(failed, s.title+"/"+r.name)
				} else {
					passed = append(passed, s.title+"/"+r.name)
				}
			})
		}
	}
	wg.Wait()
	return failed, passed
}
