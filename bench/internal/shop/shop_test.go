package shop_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m).Run()) }

// A contender that is wired wrongly is no comparison: every one inserts an order for a new
// key, and none for a replay.
func TestEveryShopInsertsOnce(t *testing.T) {
	for _, c := range shop.All() {
		t.Run(c.Name, func(t *testing.T) {
			url := pgtest.DatabaseURL(t)
			s, err := c.Open(t.Context(), shop.Target{URL: url, Pool: 4})
			require.NoError(t, err)
			defer func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
				defer cancel()
				require.NoError(t, s.Close(ctx))
			}()
			orders := func() (n int) {
				conn, err := pgx.Connect(t.Context(), url)
				require.NoError(t, err)
				defer func() { _ = conn.Close(t.Context()) }()
				require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&n))
				return n
			}
			require.Error(t, s.Replay(t.Context(), "new"), "there is no answer yet")
			before := orders()
			require.NoError(t, s.Order(t.Context(), "a"))
			require.NoError(t, s.Keep(t.Context(), "b"))
			require.Equal(t, before+2, orders())
			require.NoError(t, s.Replay(t.Context(), "b"))
			require.Equal(t, before+2, orders())
			if c.Name != shop.Bare {
				require.Error(t, s.Order(t.Context(), "a"), "it has an answer")
				require.Equal(t, before+2, orders())
				require.NoError(t, s.Replay(t.Context(), "a"))
			}
			if claimer, ok := s.(shop.Claimer); ok {
				require.NoError(t, claimer.Claim(t.Context(), "c"))
				require.Error(t, claimer.Claim(t.Context(), "c"), "it is held")
			}
		})
	}
}
