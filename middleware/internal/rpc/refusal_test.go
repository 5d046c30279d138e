package rpc_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/middleware/internal/rpc"
)

// A refusal without a code would be a success of the call.
func TestARefusalIsNoSuccess(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"held", "a kind without a row"} {
		require.NotZero(t, rpc.Refuse(kind).Code, kind)
		require.NotEmpty(t, rpc.Refuse(kind).Text, kind)
	}
}

// A client repeats by itself what is Unavailable, and would run the call when the cool-down is over.
func TestACallInACoolDownIsNotRepeated(t *testing.T) {
	t.Parallel()
	l := lock.New(memstore.New())
	require.NoError(t, must.Get(l.Acquire(t.Context(), lock.Key("user", "42")))(t).Settle(t.Context(), nil, time.Minute))
	err := rpc.Lock(t.Context(), l, "user", "42", nil)
	require.Equal(t, &rpc.Refusal{Code: rpc.Aborted, Kind: "cooling-down", Text: err.Error()}, err)
}
