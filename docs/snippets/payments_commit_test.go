package snippets_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// transfer is for a bank that has no idempotency keys, and that cannot be asked.
func transfer(w http.ResponseWriter, r *http.Request) {
	if err := lock.Commit(r.Context()); err != nil { // no later try begins it again
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	if err := plainBank.Transfer(r.Context()); err != nil {
		http.Error(w, "the transfer may have been made", http.StatusBadGateway) // kept
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// transferFirst is the same in the wrong order for that bank.
func transferFirst(w http.ResponseWriter, r *http.Request) {
	if err := plainBank.Transfer(r.Context()); err != nil {
		http.Error(w, "the transfer may have been made", http.StatusBadGateway)
		return
	}
	_ = lock.Commit(r.Context())
	w.WriteHeader(http.StatusCreated)
}

type transfersKey struct{}

var plainBank transfers

// transfers counts those of the context. All are made, and none is answered.
type transfers struct{}

func (transfers) Transfer(ctx context.Context) error {
	*ctx.Value(transfersKey{}).(*int)++
	return context.DeadlineExceeded
}

func TestCommitBeforeTheEffect(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler  http.HandlerFunc
		made     int
		replayed string
	}{
		"before": {transfer, 1, "true"},
		"after":  {transferFirst, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			once := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Context(api.Account), keyfunc.IdempotencyKey)
			h := api.Authenticate(once(tt.handler))
			made := 0
			counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), transfersKey{}, &made)))
			})
			require.Equal(t, http.StatusBadGateway, pay(counted, "sk_live_acme", "k", "{}").Code)
			again := pay(counted, "sk_live_acme", "k", "{}")
			require.Equal(t, http.StatusBadGateway, again.Code)
			require.Equal(t, tt.replayed, again.Header().Get("Idempotent-Replayed"))
			require.Equal(t, tt.made, made)
		})
	}
}
