package oversqlite_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each handler gets a request and its repeat. Those that write by a handle of their own are the
// twins: the row is there twice.
func TestHandlersOfLibraries(t *testing.T) {
	t.Parallel()
	for _, h := range handlings() {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			store, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
			require.NoError(t, err)
			t.Cleanup(store.Close)
			db := store.DB()
			_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (run INTEGER NOT NULL); CREATE TABLE items (id INTEGER PRIMARY KEY); INSERT INTO items VALUES (1)")
			require.NoError(t, err)
			l := lock.New(store, lock.WithTransaction(), lock.WithBudget(5*time.Second), lock.WithLogger(slog.New(slog.DiscardHandler)))
			t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
			runs := 0
			handler := latch.Idempotent(l, keyfunc.Global, keyfunc.IdempotencyKey)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				runs++
				tx, _ := sqlitestore.Tx(r.Context())
				if err := h.handle(&call{r.Context(), db, tx, runs}); err != nil {
					t.Logf("run %d: %v", runs, err)
					http.Error(w, err.Error(), http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusCreated)
				_, _ = fmt.Fprintf(w, "order %d", runs)
			}))
			var codes []int
			var bodies []string
			for range 2 {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", nil)
				r.Header.Set("Idempotency-Key", "8e03978e")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				codes, bodies = append(codes, w.Code), append(bodies, w.Body.String())
			}
			var rows int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM orders").Scan(&rows))
			want := map[outcome]struct{ code, runs, rows int }{kept: {201, 1, 1}, none: {201, 1, 0}, undone: {500, 2, 0}, twice: {500, 2, 2}}[h.want]
			require.Equal(t, []int{want.code, want.code}, codes)
			require.Equal(t, want.runs, runs)
			require.Equal(t, want.rows, rows)
			if want.runs == 1 {
				require.Equal(t, bodies[0], bodies[1])
			}
		})
	}
}
