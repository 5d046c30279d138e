package latchgrpc

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/httplatch/httplatch/middleware/internal/rpc"
)

// onceCall is one call behind Once, and the result of its handler if it has run.
type onceCall struct {
	config
	client  context.Context //nolint:containedctx // of the call: it ends when its client has left
	call    rpc.Call
	req     any
	handler grpc.UnaryHandler

	response any
	err      error
}

// run runs the handler, and returns what is kept of its answer. Nothing is kept of a response that
// cannot be marshalled: the effect has happened.
func (o *onceCall) run(ctx context.Context) (*rpc.Answer, error) {
	sent := &noted{client: o.client}
	if sent.ServerTransportStream = grpc.ServerTransportStreamFromContext(ctx); sent.ServerTransportStream != nil {
		ctx = grpc.NewContextWithServerTransportStream(ctx, sent)
	}
	o.response, o.err = o.handler(ctx, o.req)
	answer := &rpc.Answer{}
	if o.err != nil {
		if answer.Failure = o.failure(); answer.Failure == nil {
			return nil, o.err
		}
	} else if m, ok := o.response.(proto.Message); ok && m.ProtoReflect().IsValid() {
		content, err := proto.Marshal(m)
		if err != nil {
			return nil, nil //nolint:nilerr,nilnil // gRPC reports it
		}
		answer.Type, answer.Message = string(m.ProtoReflect().Descriptor().FullName()), content
	} else {
		return nil, nil //nolint:nilnil // it is not kept
	}
	answer.Header, answer.Trailer = sent.kept()
	return answer, nil
}

// failure returns what is kept of the error, nil if it is not kept.
func (o *onceCall) failure() *rpc.Failure {
	s, ok := status.FromError(o.err)
	if !ok || !o.final(s.Code()) {
		return nil
	}
	f := &rpc.Failure{Code: rpc.Code(s.Code()), Text: s.Message()}
	for _, d := range s.Proto().GetDetails() {
		if info := (&errdetails.ErrorInfo{}); d.MessageIs((*errdetails.RetryInfo)(nil)) || d.UnmarshalTo(info) == nil && info.GetDomain() == rpc.Domain {
			return nil // it may be sent again, or is the refusal of an inner guard
		}
		f.Details = append(f.Details, rpc.Detail{Type: string(d.MessageName()), Bytes: d.GetValue()})
	}
	return f
}

// replay returns an answer that was kept.
func replay(ctx context.Context, kept *rpc.Answer) (any, error) {
	header := fromKept(kept.Header)
	header.Set("idempotent-replayed", "true")
	if f := kept.Failure; f != nil {
		_ = errors.Join(grpc.SetHeader(ctx, header), grpc.SetTrailer(ctx, fromKept(kept.Trailer))) // gRPC reports it
		s := status.New(codes.Code(f.Code), f.Text).Proto()
		for _, d := range f.Details {
			s.Details = append(s.Details, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type, Value: d.Bytes})
		}
		return nil, status.ErrorProto(s)
	}
	found, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(kept.Type))
	if err != nil {
		return nil, refuse(ctx, rpc.Refuse("result-not-replayable"))
	}
	m := found.New().Interface()
	if proto.Unmarshal(kept.Message, m) != nil {
		return nil, refuse(ctx, rpc.Refuse("result-not-replayable"))
	}
	_ = errors.Join(grpc.SetHeader(ctx, header), grpc.SetTrailer(ctx, fromKept(kept.Trailer)))
	return m, nil
}

// refuse returns err as a status if it is a refusal, and otherwise as it is. The retry policy of gRPC waits
// as long as a refusal says.
func refuse(ctx context.Context, err error) error {
	r, ok := errors.AsType[*rpc.Refusal](err)
	if !ok {
		return err
	}
	var details []protoadapt.MessageV1
	if r.Kind != "" {
		details = append(details, &errdetails.ErrorInfo{Reason: r.Reason(), Domain: rpc.Domain})
	}
	if r.Retry > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.Retry)})
		_ = grpc.SetTrailer(ctx, metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(r.Retry.Milliseconds(), 10)))
	}
	s := status.New(codes.Code(r.Code), r.Text)
	if detailed, err := s.WithDetails(details...); err == nil {
		s = detailed
	}
	return s.Err() //nolint:wrapcheck // it is for gRPC
}

// noted notes the header and the trailer that a handler sets, also when its client has left.
type noted struct {
	grpc.ServerTransportStream
	client          context.Context //nolint:containedctx // see onceCall
	mu              sync.Mutex
	header, trailer metadata.MD
}

func (n *noted) note(to *metadata.MD, md metadata.MD) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*to = metadata.Join(*to, md)
}

// unlessGone returns err, or nil if the client has left: a handler that fails because it cannot set a header would run
// again, and the repeat gets what is noted.
func (n *noted) unlessGone(err error) error {
	if n.client.Err() != nil {
		return nil //nolint:nilerr // the handler goes on without its client
	}
	return err
}

func (n *noted) SetHeader(md metadata.MD) error {
	n.note(&n.header, md)
	return n.unlessGone(n.ServerTransportStream.SetHeader(md))
}

func (n *noted) SendHeader(md metadata.MD) error {
	n.note(&n.header, md)
	return n.unlessGone(n.ServerTransportStream.SendHeader(md))
}

func (n *noted) SetTrailer(md metadata.MD) error {
	n.note(&n.trailer, md)
	return n.unlessGone(n.ServerTransportStream.SetTrailer(md))
}

func (n *noted) kept() (header, trailer map[string][][]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return rpc.Kept(n.header), rpc.Kept(n.trailer)
}

func fromKept(kept map[string][][]byte) metadata.MD {
	md := metadata.MD{}
	for name, values := range kept {
		for _, v := range values {
			md.Append(name, string(v))
		}
	}
	return md
}
