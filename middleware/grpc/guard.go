package latchgrpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/rpc"
)

// Option is a setting of [Once].
type Option interface{ apply(c *config) }

type option func(c *config)

func (o option) apply(c *config) { o(c) }

type config struct {
	final func(codes.Code) bool
}

// WithFinal sets which errors of a handler are kept, and returned to each repeat. Unless set, these are
// InvalidArgument, NotFound, AlreadyExists, FailedPrecondition and OutOfRange. All others free the key: the
// repeat runs. An error with a google.rpc.RetryInfo is never kept. Under lock.WithTransaction, the work is
// rolled back for an error that is not kept, and committed otherwise. WithFinal panics on nil.
func WithFinal(final func(codes.Code) bool) Option {
	if final == nil {
		panic("latchgrpc.WithFinal: nil function")
	}
	return option(func(c *config) { c.final = final })
}

// Once returns an interceptor that runs a call once per scope, method and key. Its repeats get the first
// answer: the message, or an error that is kept, with header and trailer of the handler, and
// "idempotent-replayed: true" in the header. A repeat with another request is refused.
//
// scope returns whose call it is, such as the user of an authentication that is an earlier interceptor of
// the chain; "" is refused with Unauthenticated. Methods that are declared with the
// idempotency_level NO_SIDE_EFFECTS pass.
//
// A handler goes on when its client has left or its deadline is over, until the lease ends. What it then sets
// as header or trailer is for the repeats, and grpc.SetHeader reports no error. While it
// runs, a repeat waits as long as lock.WithWait of the Locker says, and not at all unless it is set, and is
// then refused with Unavailable. A panic frees the key. A handler that fails after its effect calls
// lock.Commit first, and cannot call grpc.SetSendCompressor. A message that is no protobuf message, or an
// answer of more than 1 MiB, is not kept: repeats are refused.
//
// Once panics on a nil Locker, function or Option, and if the store keeps no receipts. The interceptor is
// safe for concurrent use.
func Once(l *lock.Locker, scope func(context.Context) string, key KeyFunc, opts ...Option) grpc.UnaryServerInterceptor {
	rpc.CheckOnce("latchgrpc.Once", l, scope != nil, key != nil)
	c := config{final: func(code codes.Code) bool { return rpc.FinalByDefault(rpc.Code(code)) }}
	for _, o := range opts {
		if o == nil {
			panic("latchgrpc.Once: nil Option")
		}
		o.apply(&c)
	}
	l = l.With(lock.WithDetached())
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		method := descriptorOf(info.FullMethod)
		id, passes, err := keyOf(ctx, l, method, key, req)
		switch {
		case passes:
			return handler(ctx, req)
		case err != nil:
			return nil, refuse(ctx, err)
		}
		o := &onceCall{config: c, client: ctx, req: req, handler: handler}
		o.call = rpc.Call{Scope: scope(ctx), Method: info.FullMethod, Key: id, Output: outputOf(method), Run: o.run}
		if o.call.Scope == "" {
			return nil, refuse(ctx, rpc.Refuse("unauthenticated"))
		}
		if o.call.Request, err = pack(req); err != nil {
			return nil, refuse(ctx, rpc.Refuse("key-failed"))
		}
		kept, err := o.call.Once(ctx, l)
		switch {
		case err != nil:
			return nil, refuse(ctx, err)
		case kept != nil:
			return replay(ctx, kept)
		}
		return o.response, o.err
	}
}

// Lock returns an interceptor that runs one call at a time per name and key. Another call is refused with
// Aborted, or waits as lock.WithWait of the Locker says. key may return the ID of an order in the
// request, for instance. Methods with NO_SIDE_EFFECTS pass. A worker excludes such calls by
// locker.Do(ctx, lock.Key(name, key), ...).
//
// Put it inside Once: grpc.ChainUnaryInterceptor(auth, once, lock). It panics on a nil Locker or function.
func Lock(l *lock.Locker, name string, key KeyFunc) grpc.UnaryServerInterceptor {
	rpc.Check("latchgrpc.Lock", l, key != nil)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
		id, passes, err := keyOf(ctx, l, descriptorOf(info.FullMethod), key, req)
		switch {
		case passes:
			return handler(ctx, req)
		case err != nil:
			return nil, refuse(ctx, err)
		}
		if refused := rpc.Lock(ctx, l, name, id, func(ctx context.Context) { response, err = handler(ctx, req) }); refused != nil {
			return nil, refuse(ctx, refused)
		}
		return response, err
	}
}

// RefuseStreams returns an interceptor that refuses streams with Unimplemented, since [Once] and [Lock] do
// not guard them. Methods with NO_SIDE_EFFECTS pass. Without it, all streams pass. To let some
// pass, call it for the others.
func RefuseStreams() grpc.StreamServerInterceptor {
	return func(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if noEffect(descriptorOf(info.FullMethod)) {
			return handler(service, stream)
		}
		return refuse(stream.Context(), rpc.Refuse("key-not-supported"))
	}
}

// descriptorOf returns the descriptor of a method, nil if its file is not linked into the program.
func descriptorOf(fullMethod string) protoreflect.MethodDescriptor {
	name := strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", ".")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil
	}
	method, _ := found.(protoreflect.MethodDescriptor)
	return method
}

func noEffect(method protoreflect.MethodDescriptor) bool {
	if method == nil {
		return false
	}
	options, _ := method.Options().(*descriptorpb.MethodOptions)
	return options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

func outputOf(method protoreflect.MethodDescriptor) string {
	if method == nil {
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
