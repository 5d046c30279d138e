package integrations_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/lock/memstore"
	latchgrpc "github.com/httplatch/httplatch/middleware/grpc"
)

const retryUnavailable = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
	"initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// gRPC's own retries have the key of the first attempt.
func TestGRPCRetryPolicy(t *testing.T) {
	t.Parallel()
	runs := 0
	call := serveGRPC(t, func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		if runs++; runs < 3 {
			return nil, status.Error(codes.Unavailable, "not yet")
		}
		return wrapperspb.String("created"), nil
	}, latchgrpc.Once(newLocker(t, memstore.New()), callerOf, latchgrpc.IdempotencyKey), grpc.WithDefaultServiceConfig(retryUnavailable))
	for range 2 {
		answer, err := call(t.Context(), "42", "a", "tea")
		require.NoError(t, err)
		require.Equal(t, "created", answer)
	}
	require.Equal(t, 3, runs)
}
