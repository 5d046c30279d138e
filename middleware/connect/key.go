package latchconnect

import (
	"context"
	"errors"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/rpc"
)

// KeyFunc returns the key of a call. [keyfunc.ErrSkip] lets the call pass unguarded, as for a procedure that
// needs no guard. "" and [keyfunc.ErrMissing] are refused with InvalidArgument. A *connect.Error is
// returned to the client, and any other error is logged and refused with Internal. It must be safe for concurrent
// use.
type KeyFunc func(ctx context.Context, req connect.AnyRequest) (string, error)

var errNoMessage = errors.New("latchconnect: not a protobuf message")

// IdempotencyKey is a KeyFunc that takes the key from the header Idempotency-Key, and checks it as
// [keyfunc.IdempotencyKey] does.
func IdempotencyKey(_ context.Context, req connect.AnyRequest) (string, error) {
	return keyfunc.IdempotencyKey(&http.Request{Header: req.Header()}) //nolint:wrapcheck // it is for keyOf
}

// Field returns a KeyFunc that takes the key from a string field of the request, such as the "request_id"
// of AIP-155.
func Field(name string) KeyFunc {
	return func(_ context.Context, req connect.AnyRequest) (string, error) {
		m, ok := req.Any().(proto.Message)
		if !ok {
			return "", errNoMessage
		}
		field := m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
			return "", errors.New("latchconnect: " + string(m.ProtoReflect().Descriptor().FullName()) + " has no string field " + name)
		}
		return m.ProtoReflect().Get(field).String(), nil
	}
}

// keyOf returns the key of a call, or whether the call passes. The error is a *rpc.Refusal or a
// *connect.Error.
func keyOf(ctx context.Context, l *lock.Locker, key KeyFunc, req connect.AnyRequest) (id string, passes bool, err error) {
	if req.Spec().IdempotencyLevel == connect.IdempotencyNoSideEffects {
		return "", true, nil
	}
	id, err = key(ctx, req)
	_, isConnect := errors.AsType[*connect.Error](err)
	return rpc.KeyOf(ctx, l, id, err, isConnect)
}
