package integrations_test

import (
	"context"
	"crypto/sha256"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/httplatch/httplatch/lock"
)

// onceEachUnary runs a call once per user, procedure and key, over all protocols of Connect.
func onceEachUnary(locker *lock.Locker) connect.UnaryInterceptorFunc {
	return func(handler connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			user, keys := auth.UserID(ctx), req.Header().Values("Idempotency-Key")
			if user == "" || len(keys) != 1 || keys[0] == "" {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("a user and one Idempotency-Key are required"))
			}
			request, err := pack(req.Any())
			if err != nil {
				return nil, err
			}
			fingerprint := sha256.Sum256(request)
			key := lock.Key("call", user, req.Spec().Procedure, keys[0])
			receipt, _, err := locker.Once(ctx, key, fingerprint[:], func(ctx context.Context) ([]byte, error) {
				response, err := handler(ctx, req)
				if err != nil {
					return nil, err // it is not kept: the next call runs
				}
				return pack(response.Any())
			})
			if err != nil {
				return nil, connectRefusal(err)
			}
			message, err := unpack(receipt)
			return keptResponse{connect.NewResponse(&emptypb.Empty{}), message}, connectRefusal(err)
		}
	}
}

// keptResponse is a response whose message is known only at run time.
type keptResponse struct {
	connect.AnyResponse

	message any
}

func (r keptResponse) Any() any { return r.message }

func connectRefusal(err error) error {
	switch {
	case errors.Is(err, lock.ErrMismatch):
		return connect.NewError(connect.CodeInvalidArgument, errors.New("the key was used for another request"))
	case errors.Is(err, lock.ErrAbandoned), errors.Is(err, lock.ErrLost):
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the outcome of the first call with this key is not known"))
	case errors.Is(err, errNoResponse):
		return connect.NewError(connect.CodeFailedPrecondition, errors.New("the call was processed, and has no response"))
	case errors.Is(err, lock.ErrHeld), errors.Is(err, lock.ErrUnavailable), errors.Is(err, lock.ErrClosed):
		return connect.NewError(connect.CodeUnavailable, errors.New("the call was not processed now"))
	}
	return err
}
