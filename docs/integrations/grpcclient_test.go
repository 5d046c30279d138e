package integrations_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
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
	}, onceEachCall(newLocker(t, memstore.New()), callerOf), grpc.WithDefaultServiceConfig(retryUnavailable))
	for range 2 {
		answer, err := call(t.Context(), "42", "a", "tea")
		require.NoError(t, err)
		require.Equal(t, "created", answer)
	}
	require.Equal(t, 3, runs)
}

// With WithDetached a handler comes to its end when its client has given up, and without it does not.
func TestGRPCClientGivesUp(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]lock.Option{"detached": {lock.WithDetached()}, "not": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, gone, ended := make(chan struct{}, 2), make(chan struct{}), make(chan error, 2)
			call := serveGRPC(t, func(ctx context.Context, _ *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
				arrived <- struct{}{}
				select {
				case <-gone:
				case <-ctx.Done():
				}
				ended <- ctx.Err()
				return wrapperspb.String("created"), ctx.Err()
			}, onceEachCall(newLocker(t, memstore.New(), options...), callerOf))
			ctx, giveUp := context.WithCancel(t.Context())
			go func() { <-arrived; giveUp() }()
			_, err := call(ctx, "42", "a", "tea")
			require.Equal(t, codes.Canceled, status.Code(err))
			if options == nil {
				require.Error(t, <-ended)
				return
			}
			close(gone)
			require.NoError(t, <-ended)
			eventually(t, func() bool {
				answer, err := call(t.Context(), "42", "a", "tea")
				return err == nil && answer == "created"
			}, "no response")
			require.Empty(t, ended, "it has run again")
		})
	}
}

// A response of a type that this program does not know is an error, and no reason to run again.
func TestGRPCForgottenType(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	_, _, err := locker.Once(t.Context(), lock.Key("call", "42", createMethod, "a"), nil, func(context.Context) ([]byte, error) {
		return proto.Marshal(&anypb.Any{TypeUrl: "type.googleapis.com/shop.v0.Forgotten"})
	})
	require.NoError(t, err)
	call := serveGRPC(t, func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		t.Error("it has run again")
		return nil, errFailed
	}, onceEachCall(locker, callerOf))
	_, err = call(t.Context(), "42", "a", "tea")
	require.Equal(t, codes.Unknown, status.Code(err))
}
