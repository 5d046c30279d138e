package latchconnect

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/httplatch/httplatch/middleware/internal/rpc"
)

const replayedHeader = "Idempotent-Replayed"

// onceCall is one call behind Once, and the result of its handler if it has run.
type onceCall struct {
	config
	call    rpc.Call
	req     connect.AnyRequest
	handler connect.UnaryFunc

	response connect.AnyResponse
	err      error
}

// run runs the handler, and returns what is kept of its answer. Nothing is kept of a response that
// cannot be marshalled: the effect has happened.
func (o *onceCall) run(ctx context.Context) (*rpc.Answer, error) {
	o.response, o.err = o.handler(ctx, o.req)
	if o.err != nil {
		failed, ok := errors.AsType[*connect.Error](o.err)
		if !ok || !o.final(failed.Code()) {
			return nil, o.err
		}
		failure := failureOf(failed)
		if failure == nil {
			return nil, o.err
		}
		if connect.IsWireError(failed) { // of another server, whose headers Connect does not send
			return &rpc.Answer{Failure: failure}, nil
		}
		return &rpc.Answer{Failure: failure, Header: toKept(failed.Meta())}, nil
	}
	if o.response == nil {
		return nil, nil //nolint:nilnil // it is not kept
	}
	m, ok := o.response.Any().(proto.Message)
	if !ok || !m.ProtoReflect().IsValid() {
		return nil, nil //nolint:nilnil // the same
	}
	content, err := proto.Marshal(m)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // Connect reports it
	}
	return &rpc.Answer{
		Type: string(m.ProtoReflect().Descriptor().FullName()), Message: content,
		Header: toKept(o.response.Header()), Trailer: toKept(o.response.Trailer()),
	}, nil
}

// failureOf returns what is kept of an error, nil if it may be sent again, or is the refusal of an inner
// guard.
func failureOf(err *connect.Error) *rpc.Failure {
	f := &rpc.Failure{Code: rpc.Code(err.Code()), Text: err.Message()}
	for _, d := range err.Details() {
		value, _ := d.Value()
		info, isInfo := value.(*errdetails.ErrorInfo)
		if _, retry := value.(*errdetails.RetryInfo); retry || isInfo && info.GetDomain() == rpc.Domain {
			return nil
		}
		f.Details = append(f.Details, rpc.Detail{Type: d.Type(), Bytes: d.Bytes()})
	}
	return f
}

// copied returns an error equal to err, with headers of its own.
func copied(err error) error {
	failed, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return err
	}
	c := connect.NewError(failed.Code(), failed.Unwrap())
	if connect.IsWireError(failed) {
		c = connect.NewWireError(failed.Code(), failed.Unwrap())
	}
	for _, d := range failed.Details() {
		c.AddDetail(d)
	}
	maps.Copy(c.Meta(), failed.Meta().Clone())
	return c
}

// keptResponse is a response whose message is known only at run time.
type keptResponse struct {
	connect.AnyResponse
	message proto.Message
}

func (r keptResponse) Any() any { return r.message }

// replay returns an answer that was kept.
func replay(kept *rpc.Answer) (connect.AnyResponse, error) {
	if f := kept.Failure; f != nil {
		err := connect.NewError(connect.Code(f.Code), errors.New(f.Text))
		for _, d := range f.Details {
			addDetail(err, &anypb.Any{TypeUrl: "type.googleapis.com/" + d.Type, Value: d.Bytes})
		}
		addKept(err.Meta(), kept.Header)
		err.Meta().Set(replayedHeader, "true")
		return nil, err
	}
	found, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(kept.Type))
	if err != nil {
		return nil, refuse(rpc.Refuse("result-not-replayable"))
	}
	m := found.New().Interface()
	if proto.Unmarshal(kept.Message, m) != nil {
		return nil, refuse(rpc.Refuse("result-not-replayable"))
	}
	response := keptResponse{connect.NewResponse(&emptypb.Empty{}), m}
	addKept(response.Header(), kept.Header)
	addKept(response.Trailer(), kept.Trailer)
	response.Header().Set(replayedHeader, "true")
	return response, nil
}

// toKept returns the headers that a replay has. gRPC has bytes in headers that end in "-bin", and Connect
// their text.
func toKept(header http.Header) map[string][][]byte {
	kept := rpc.Kept(header)
	for name, values := range kept {
		for i, v := range values {
			if raw, err := connect.DecodeBinaryHeader(string(v)); isBinary(name) && err == nil {
				values[i] = raw
			}
		}
	}
	return kept
}

func addKept(to http.Header, kept map[string][][]byte) {
	for name, values := range kept {
		for _, v := range values {
			if isBinary(name) {
				v = []byte(connect.EncodeBinaryHeader(v))
			}
			to.Add(name, string(v))
		}
	}
}

func isBinary(name string) bool { return strings.HasSuffix(strings.ToLower(name), "-bin") }

func addDetail(err *connect.Error, message proto.Message) {
	if detail, failed := connect.NewErrorDetail(message); failed == nil {
		err.AddDetail(detail)
	}
}

// refuse returns err as an error of Connect if it is a refusal, and otherwise as it is.
func refuse(err error) error {
	r, ok := errors.AsType[*rpc.Refusal](err)
	if !ok {
		return err
	}
	refused := connect.NewError(connect.Code(r.Code), r)
	if r.Kind != "" {
		addDetail(refused, &errdetails.ErrorInfo{Reason: r.Reason(), Domain: rpc.Domain})
	}
	if r.Retry > 0 {
		addDetail(refused, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.Retry)})
	}
	return refused
}
