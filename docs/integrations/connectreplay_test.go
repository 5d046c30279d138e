package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	latchconnect "github.com/httplatch/httplatch/middleware/connect"
)

// reasonOf returns the kind of problem that a refusal names.
func reasonOf(t *testing.T, err error) string {
	t.Helper()
	var refused *connect.Error
	if !errors.As(err, &refused) || len(refused.Details()) == 0 {
		return ""
	}
	detail, err := refused.Details()[0].Value()
	require.NoError(t, err)
	return strings.ReplaceAll(strings.ToLower(detail.(*errdetails.ErrorInfo).GetReason()), "_", "-")
}

// repeat is what becomes of a call that is sent again.
type repeat struct {
	code   connect.Code // 0: success
	reason string
	runs   int64 // of both
}

// Over Connect a repeat gets the first answer, or runs if that was a failure. gRPC and gRPC-Web
// have their status behind the answer, where Idempotent cannot read it: what ran, ran, whatever
// its status. The interceptor of middleware/connect treats all protocols alike.
func TestConnectReplays(t *testing.T) {
	t.Parallel()
	lost := repeat{connect.CodeFailedPrecondition, "result-not-replayable", 1}
	kept, again := repeat{runs: 1}, repeat{code: connect.CodeUnavailable, runs: 2}
	invalid := repeat{code: connect.CodeInvalidArgument, runs: 1}
	type repeats struct{ created, invalid, unavailable repeat }
	for protocol, want := range map[string]repeats{
		"Connect":      {kept, invalid, again},
		"Connect JSON": {kept, invalid, again},
		"gRPC":         {lost, lost, lost},
		"gRPC-Web":     {lost, lost, lost},
	} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			create := func(_ context.Context, order *connect.Request[text]) (*connect.Response[text], error) {
				runs.Add(1)
				switch order.Msg.GetValue() {
				case "invalid":
					return nil, connect.NewError(connect.CodeInvalidArgument, errFailed)
				case "unavailable":
					return nil, connect.NewError(connect.CodeUnavailable, errFailed)
				}
				return connect.NewResponse(wrapperspb.String("created")), nil
			}
			call := serveConnect(t, guardedConnect(newLocker(t, memstore.New()), create))
			twice := func(order string) repeat {
				runs.Store(0)
				_, first := call(protocol, order, order)
				response, err := call(protocol, order, order)
				if err != nil {
					return repeat{connect.CodeOf(err), reasonOf(t, err), runs.Load()}
				}
				require.NoError(t, first)
				require.Equal(t, "created", response.Msg.GetValue())
				require.Equal(t, "true", response.Header().Get("Idempotent-Replayed"))
				return repeat{runs: runs.Load()}
			}
			require.Equal(t, want, repeats{twice("tea"), twice("invalid"), twice("unavailable")})
		})
	}
}

// Each protocol gets refusals as its own errors.
func TestConnectRefusals(t *testing.T) {
	t.Parallel()
	for protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			arrived, finish := make(chan struct{}), make(chan struct{})
			call := serveConnect(t, guardedConnect(newLocker(t, store, lock.WithWait(0)), func(_ context.Context, order *connect.Request[text]) (*connect.Response[text], error) {
				if order.Msg.GetValue() == "slow" {
					close(arrived)
					<-finish
				}
				return connect.NewResponse(wrapperspb.String("created")), nil
			}))
			requireRefused := func(code connect.Code, reason string, err error) {
				t.Helper()
				require.Equal(t, code, connect.CodeOf(err), err)
				require.Equal(t, reason, reasonOf(t, err))
			}
			_, err := call(protocol, "", "tea")
			requireRefused(connect.CodeInvalidArgument, "key-missing", err)
			_, err = call(protocol, "a", "tea")
			require.NoError(t, err)
			_, err = call(protocol, "a", "coffee")
			requireRefused(connect.CodeInvalidArgument, "key-reused", err)

			first := make(chan error)
			go func() {
				_, err := call(protocol, "b", "slow")
				first <- err
			}()
			<-arrived
			_, err = call(protocol, "b", "slow")
			requireRefused(connect.CodeUnavailable, "in-progress", err)
			close(finish)
			require.NoError(t, <-first)
		})
	}
}

// A client that repeats what is Unavailable does not repeat what a Lock refuses.
func TestConnectLock(t *testing.T) {
	t.Parallel()
	arrived, finish := make(chan struct{}), make(chan struct{})
	onePerUser := latch.Lock(newLocker(t, memstore.New()), "user", keyfunc.Context(auth.UserID), latch.WithErrorHandler(refuse))
	call := serveConnect(t, requireUser(onePerUser(connect.NewUnaryHandler(createMethod, func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
		close(arrived)
		<-finish
		return connect.NewResponse(wrapperspb.String("created")), nil
	}))))
	first := make(chan error)
	go func() {
		_, err := call("Connect", "", "tea")
		first <- err
	}()
	<-arrived
	_, err := call("Connect", "", "coffee")
	require.Equal(t, connect.CodeAborted, connect.CodeOf(err))
	require.Equal(t, "held", reasonOf(t, err))
	close(finish)
	require.NoError(t, <-first)
}

// Idempotent keeps an error, or frees its key, by the status that Connect gives to its code.
func TestConnectKeepsErrors(t *testing.T) {
	t.Parallel()
	runs := 0
	var answer connect.Code
	call := serveConnect(t, guardedConnect(newLocker(t, memstore.New()), func(context.Context, *connect.Request[text]) (*connect.Response[text], error) {
		runs++
		return nil, connect.NewError(answer, errFailed)
	}))
	var kept []connect.Code
	for answer = connect.CodeCanceled; answer <= connect.CodeUnauthenticated; answer++ {
		runs = 0
		for range 2 {
			_, err := call("Connect", answer.String(), "tea")
			require.Equal(t, answer, connect.CodeOf(err))
		}
		if runs == 1 {
			kept = append(kept, answer)
		}
	}
	require.Equal(t, []connect.Code{
		connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodeAlreadyExists,
		connect.CodeFailedPrecondition, connect.CodeAborted, connect.CodeOutOfRange,
	}, kept)
}

// A message with a map has other bytes each time that it is sent, and Idempotent compares
// bytes. The interceptor compares messages.
func TestConnectComparesBytes(t *testing.T) {
	t.Parallel()
	create := func(context.Context, *connect.Request[structpb.Struct]) (*connect.Response[structpb.Struct], error) {
		return connect.NewResponse(&structpb.Struct{}), nil
	}
	idempotent := func(opts ...latch.IdempotentOption) http.Handler {
		opts = append(opts, latch.WithErrorHandler(refuse))
		return latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, opts...)(connect.NewUnaryHandler(createMethod, create))
	}
	tests := map[string]struct {
		handler http.Handler
		same    bool
	}{
		"Idempotent":                           {idempotent(), false},
		"Idempotent that compares nothing":     {idempotent(latch.WithFingerprint(keyfunc.Global)), true},
		"interceptor, which compares messages": {connect.NewUnaryHandler(createMethod, create, connect.WithInterceptors(latchconnect.Once(newLocker(t, memstore.New()), auth.UserID, latchconnect.IdempotencyKey))), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(requireUser(tt.handler))
			defer server.Close()
			client := connect.NewClient[structpb.Struct, structpb.Struct](server.Client(), server.URL+createMethod)
			order := &structpb.Struct{Fields: map[string]*structpb.Value{}}
			for i := range 20 {
				order.Fields[fmt.Sprint("line ", i)] = structpb.NewStringValue("tea")
			}
			refused := 0
			for range 10 {
				request := connect.NewRequest(order)
				request.Header().Set("X-User-ID", "42")
				request.Header().Set("Idempotency-Key", "k")
				if _, err := client.CallUnary(t.Context(), request); err != nil {
					require.Equal(t, "key-reused", reasonOf(t, err))
					refused++
				}
			}
			require.Equal(t, tt.same, refused == 0, "%d of 10 refused", refused)
		})
	}
}

type (
	text          = wrapperspb.StringValue
	connectCreate = func(context.Context, *connect.Request[text]) (*connect.Response[text], error)
)

// protocols are those that a Connect handler speaks.
var protocols = map[string][]connect.ClientOption{
	"Connect":      nil,
	"Connect JSON": {connect.WithProtoJSON()},
	"gRPC":         {connect.WithGRPC()},
	"gRPC-Web":     {connect.WithGRPCWeb()},
}

// serveConnect serves h over HTTP/2 on loopback, and returns a function that calls it as user 42.
func serveConnect(t *testing.T, h http.Handler) func(protocol, key, order string) (*connect.Response[text], error) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of panics
	server.StartTLS()
	t.Cleanup(server.Close)
	clients := map[string]*connect.Client[text, text]{}
	for protocol, options := range protocols {
		clients[protocol] = connect.NewClient[text, text](server.Client(), server.URL+createMethod, options...)
	}
	return func(protocol, key, order string) (*connect.Response[text], error) {
		request := connect.NewRequest(wrapperspb.String(order))
		request.Header().Set("X-User-ID", "42")
		if key != "" {
			request.Header().Set("Idempotency-Key", key)
		}
		return clients[protocol].CallUnary(t.Context(), request)
	}
}

func guardedConnect(locker *lock.Locker, create connectCreate) http.Handler {
	mux := http.NewServeMux()
	mountOverConnect(mux, locker, "/shop.v1.Orders/", connect.NewUnaryHandler(createMethod, create))
	return mux
}
