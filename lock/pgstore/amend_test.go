package pgstore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// The job, its ticket and the 202 are committed together, and so are the worker's row and the
// final answer: a worker that fails in the middle leaves neither.
func TestJobAndAnswerAreOneCommit(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, url string) *pgstore.Store{
		"pgx": func(t *testing.T, url string) *pgstore.Store {
			t.Helper()
			return newStore(t, newPool(t, url))
		},
		"database/sql": func(t *testing.T, url string) *pgstore.Store {
			t.Helper()
			s := pgstore.NewSQL(openSQL(t, url))
			t.Cleanup(s.Close)
			migrate(t, s)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := database(t)
			pool := newPool(t, url)
			_, err := pool.Exec(t.Context(), "CREATE TABLE orders (name text); CREATE TABLE jobs (ticket text)")
			require.NoError(t, err)
			l := lock.New(open(t, url), lock.WithTransaction())
			t.Cleanup(func() { require.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
			var ticket string
			fails := true
			accept := func(w http.ResponseWriter, r *http.Request) {
				var err error
				ticket, err = latch.Later(r.Context())
				require.NoError(t, err)
				require.NoError(t, exec(r.Context(), "INSERT INTO jobs VALUES ($1)", ticket))
				if fails {
					w.WriteHeader(http.StatusInternalServerError)
					return
				}
				w.Header().Set("Location", "/jobs/1")
				w.WriteHeader(http.StatusAccepted)
				_, _ = io.WriteString(w, "accepted")
			}
			final := latch.Answer{Status: http.StatusCreated, Body: []byte("done")}
			require.Equal(t, 500, serve(t, l, "", accept).Code)
			require.ErrorContains(t, latch.Finish(t.Context(), l, ticket, final), "there is no record of the ticket")
			fails = false
			require.Equal(t, 202, serve(t, l, "", accept).Code)
			count := func(table string) (n int) {
				t.Helper()
				require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
				return n
			}
			require.Equal(t, 1, count("jobs"), "of the failed request there is no job")

			work := func(fails error) error {
				_, _, err := l.Once(t.Context(), "job 1", nil, func(ctx context.Context) ([]byte, error) {
					if err := exec(ctx, "INSERT INTO orders VALUES ($1)", "done"); err != nil {
						return nil, err
					}
					for range 2 {
						if err := latch.Finish(ctx, l, ticket, final); err != nil {
							return nil, err
						}
					}
					require.Equal(t, 202, serve(t, l, "", accept).Code, "not committed yet")
					return nil, fails
				})
				return err
			}
			require.ErrorIs(t, work(errRollBack), errRollBack)
			require.Equal(t, 202, serve(t, l, "", accept).Code)
			require.Zero(t, count("orders"))
			require.NoError(t, work(nil))
			require.NoError(t, work(nil), "delivered twice")
			again := serve(t, l, "", accept)
			require.Equal(t, 201, again.Code)
			require.Equal(t, "done", again.Body.String())
			require.Equal(t, 1, count("orders"))
			require.NoError(t, latch.Finish(t.Context(), l, ticket, final))
			require.ErrorIs(t, latch.Finish(t.Context(), l, ticket, latch.Answer{Status: 500}), lock.ErrSettled)
		})
	}
}

var errRollBack = errors.New("roll back")
