package integrations_test

import (
	"context"
	"crypto/sha256"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/httplatch/httplatch/lock"
)

// onceEachCall runs a call once per user, method and key, and answers its repeats with the first response.
func onceEachCall(locker *lock.Locker, userOf func(context.Context) string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		user, keys := userOf(ctx), metadata.ValueFromIncomingContext(ctx, "idempotency-key")
		if user == "" || len(keys) != 1 || keys[0] == "" {
			return nil, status.Error(codes.InvalidArgument, "a user and one idempotency-key are required")
		}
		request, err := pack(req)
		if err != nil {
			return nil, err
		}
		fingerprint := sha256.Sum256(request)
		key := lock.Key("call", user, info.FullMethod, keys[0])
		receipt, _, err := locker.Once(ctx, key, fingerprint[:], func(ctx context.Context) ([]byte, error) {
			response, err := handler(ctx, req)
			if err != nil {
				return nil, err // it is not kept: the next call runs
			}
			return pack(response)
		})
		if err != nil {
			return nil, refusal(err)
		}
		response, err := unpack(receipt)
		return response, refusal(err)
	}
}

// refusal returns the error that a client gets for one of [lock.Locker.Once]. Unavailable asks it
// to send the same call again, with the same key. An error of the handler is returned as it is.
func refusal(err error) error {
	switch {
	case errors.Is(err, lock.ErrMismatch):
		return status.Error(codes.InvalidArgument, "the key was used for another request")
	case errors.Is(err, lock.ErrAbandoned), errors.Is(err, lock.ErrLost):
		return status.Error(codes.FailedPrecondition, "the outcome of the first call with this key is not known")
	case errors.Is(err, errNoResponse):
		return status.Error(codes.FailedPrecondition, "the call was processed, and has no response")
	case errors.Is(err, lock.ErrHeld), errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrClosed):
		return status.Error(codes.Unavailable, "the call was not processed now")
	}
	return err
}
