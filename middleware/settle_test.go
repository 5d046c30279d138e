package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// TestSettleWithoutAnswer: the answer of a handler that ran reaches its client
// though the store is away, and the key stays taken until it was settled.
func TestSettleWithoutAnswer(t *testing.T) {
	t.Parallel()
	answers := map[string]http.HandlerFunc{
		"buffered": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") },
		"streamed": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "do")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, "ne")
		},
	}
	for name, answer := range answers {
		for _, applied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s applied=%v", name, applied), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					memory := memstore.New()
					store := spyOn(memory)
					var down atomic.Bool
					down.Store(true)
					store.settle = func(ctx context.Context) (bool, error) {
						if down.Load() && !applied {
							<-ctx.Done()
							return false, ctx.Err()
						}
						return true, nil
					}
					if applied {
						store.Store = &loseSettleReply{memory, &down}
					}
					l := lock.New(store)
					t.Cleanup(func() { end(l) })
					var e effects
					h := once(l)(e.then(answer))
					require.Equal(t, "done", serve(h, keyed("k")).Body.String())
					again := serve(h, keyed("k"))
					require.Equal(t, 503, again.Code, "taken, by an end that the store has not confirmed")
					down.Store(false)
					time.Sleep(time.Minute)
					again = serve(h, keyed("k"))
					require.Equal(t, "done", again.Body.String())
					require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
					e.require(t, 1)
				})
			})
		}
	}
}

// loseSettleReply settles, and loses the reply.
type loseSettleReply struct {
	lock.Store
	down *atomic.Bool
}

func (s *loseSettleReply) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	ok, err := s.Store.Settle(ctx, key, c, receipt, keep)
	if s.down.Load() {
		<-ctx.Done()
		return false, errors.Join(errors.New("reply lost"), ctx.Err())
	}
	return ok, err
}
