package rpc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
