package latchgrpc

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/rpc"
)

// KeyFunc returns the key of a call. [keyfunc.ErrSkip] lets the call pass unguarded, as for a method that
// needs no guard (grpc.Method). "" and [keyfunc.ErrMissing] are refused with InvalidArgument. An error of
// package status is returned to the client, and any other is logged and refused with Internal. It must be safe for
// concurrent use.
type KeyFunc func(ctx context.Context, req any) (string, error)

var errNoMessage = errors.New("latchgrpc: not a protobuf message")

// IdempotencyKey is a KeyFunc that takes the key from the metadata "idempotency-key", and checks it as
// [keyfunc.IdempotencyKey] does.
func IdempotencyKey(ctx context.Context, _ any) (string, error) {
	keys := metadata.ValueFromIncomingContext(ctx, "idempotency-key")
	return keyfunc.IdempotencyKey(&http.Request{Header: http.Header{"Idempotency-Key": keys}}) //nolint:wrapcheck // it is for keyOf
}

// Field returns a KeyFunc that takes the key from a string field of the request, such as the "request_id"
// of AIP-155.
func Field(name string) KeyFunc {
	return func(_ context.Context, req any) (string, error) {
		m, ok := req.(proto.Message)
		if !ok {
			return "", errNoMessage
		}
		field := m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name))
		if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
			return "", errors.New("latchgrpc: " + string(m.ProtoReflect().Descriptor().FullName()) + " has no string field " + name)
		}
		return m.ProtoReflect().Get(field).String(), nil
	}
}

// keyOf returns the key of a call, or whether the call passes. The error is a *rpc.Refusal, or of package
// status.
func keyOf(ctx context.Context, l *lock.Locker, method protoreflect.MethodDescriptor, key KeyFunc, req any) (id string, passes bool, err error) {
	if noEffect(method) {
		return "", true, nil
	}
	id, err = key(ctx, req)
	_, isStatus := status.FromError(err)
	return rpc.KeyOf(ctx, l, id, err, isStatus)
}
