package latchconnect

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/rpc"
)

// Option is a setting of [Once].
type Option interface{ apply(c *config) }

type option func(c *config)

func (o option) apply(c *config) { o(c) }

type config struct {
	final func(connect.Code) bool
}

// WithFinal sets which errors of a handler are kept, and returned to each repeat. Unless set, these are
// InvalidArgument, NotFound, AlreadyExists, FailedPrecondition and OutOfRange. All others free the key: the
// repeat runs. An error with a google.rpc.RetryInfo is never kept. Under lock.WithTransaction, the work is
// rolled back for an error that is not kept, and committed otherwise. WithFinal panics on nil.
func WithFinal(final func(connect.Code) bool) Option {
	if final == nil {
		panic("latchconnect.WithFinal: nil function")
	}
	return option(func(c *config) { c.final = final })
}

// Once returns an interceptor that runs a call once per scope, procedure and key. Its repeats get the first
// answer: the message, or an error that is kept, with header and trailer of the handler, and
// "Idempotent-Replayed: true" in the header. A repeat with another message is refused.
//
// scope returns whose call it is, such as the user of an authentication outside; "" is refused with
// Unauthenticated. Procedures that are declared with the idempotency_level NO_SIDE_EFFECTS pass. All
// streams are refused with Unimplemented: connect.WithConditionalHandlerOptions lets some pass.
//
// A handler goes on when its client has left or its deadline is over, until the lease ends. While it
// runs, a repeat waits as long as lock.WithWait of the Locker says, and not at all unless it is set, and is
// then refused with Unavailable. A panic frees the key. A handler that fails after its effect calls
// lock.Commit first. A message that is no protobuf message, or an answer of more than 1 MiB, is not kept:
// repeats are refused.
//
// Once panics on a nil Locker, function or Option, and if the store keeps no receipts. The interceptor is
// safe for concurrent use, and has no effect in a client.
func Once(l *lock.Locker, scope func(context.Context) string, key KeyFunc, opts ...Option) connect.Interceptor {
	rpc.CheckOnce("latchconnect.Once", l, scope != nil, key != nil)
	c := config{final: func(code connect.Code) bool { return rpc.FinalByDefault(rpc.Code(code)) }}
	for _, o := range opts {
		if o == nil {
			panic("latchconnect.Once: nil Option")
		}
		o.apply(&c)
	}
	l = l.With(lock.WithDetached())
	return guard(func(ctx context.Context, req connect.AnyRequest, handler connect.UnaryFunc) (connect.AnyResponse, error) {
		id, passes, err := keyOf(ctx, l, key, req)
		switch {
		case passes:
			return handler(ctx, req)
		case err != nil:
			return nil, refuse(err)
		}
		o := &onceCall{config: c, req: req, handler: handler}
		o.call = rpc.Call{Scope: scope(ctx), Method: req.Spec().Procedure, Key: id, Output: outputOf(req.Spec()), Run: o.run, Copy: copied}
		if o.call.Scope == "" {
			return nil, refuse(rpc.Refuse("unauthenticated"))
		}
		if o.call.Request, err = pack(req.Any()); err != nil {
			return nil, refuse(rpc.Refuse("key-failed"))
		}
		kept, err := o.call.Once(ctx, l)
		switch {
		case err != nil:
			return nil, refuse(err)
		case kept != nil:
			return replay(kept)
		}
		return o.response, o.err
	})
}

// Lock returns an interceptor that runs one call at a time per name and key. Another call is refused with
// Aborted, or waits as lock.WithWait of the Locker says. key may return the ID of an order in the
// request, for instance. Procedures with NO_SIDE_EFFECTS pass, and streams are refused. A worker excludes
// such calls by locker.Do(ctx, lock.Key(name, key), ...).
//
// Put it inside Once: connect.WithInterceptors(once, lock). It panics on a nil Locker or function.
func Lock(l *lock.Locker, name string, key KeyFunc) connect.Interceptor {
	rpc.Check("latchconnect.Lock", l, key != nil)
	return guard(func(ctx context.Context, req connect.AnyRequest, handler connect.UnaryFunc) (response connect.AnyResponse, err error) {
		id, passes, err := keyOf(ctx, l, key, req)
		switch {
		case passes:
			return handler(ctx, req)
		case err != nil:
			return nil, refuse(err)
		}
		if refused := rpc.Lock(ctx, l, name, id, func(ctx context.Context) { response, err = handler(ctx, req) }); refused != nil {
			return nil, refuse(refused)
		}
		return response, err
	})
}

// guard is an interceptor of handlers. It is given their unary calls.
type guard func(ctx context.Context, req connect.AnyRequest, handler connect.UnaryFunc) (connect.AnyResponse, error)

// WrapUnary implements connect.Interceptor.
func (g guard) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		return g(ctx, req, next)
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (guard) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler implements connect.Interceptor.
func (guard) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, stream connect.StreamingHandlerConn) error {
		if stream.Spec().IdempotencyLevel == connect.IdempotencyNoSideEffects {
			return next(ctx, stream)
		}
		return refuse(rpc.Refuse("key-not-supported"))
	}
}

// outputOf returns the type of the procedure's responses, "" if the generated code does not have it.
func outputOf(spec connect.Spec) string {
	method, ok := spec.Schema.(protoreflect.MethodDescriptor)
	if !ok {
		return ""
	}
	return string(method.Output().FullName())
}

// pack returns the bytes of a message with the name of its type.
func pack(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok || !m.ProtoReflect().IsValid() {
		return nil, errNoMessage
	}
	content, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return append([]byte(m.ProtoReflect().Descriptor().FullName()+"\n"), content...), err
}
