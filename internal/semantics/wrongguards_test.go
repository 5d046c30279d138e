package semantics_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

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

// TestWrongGuardsFail is the twin of TestTable: guards that are wrong in a known
// way fail in the rows that are about it.
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
		"a cache": {caching, 140, []string{
			"Whose request, and for what/another user", "Whose request, and for what/another path", "The same key for another request/another body",
			"Which answers are kept/`500`", "While the first runs/a duplicate",
			"What is for the first client alone/`Set-Cookie`", "Streams and taken connections/a protocol upgrade", "The answer again/a repeat in another process",
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
