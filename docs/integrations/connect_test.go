package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	latchconnect "github.com/httplatch/httplatch/middleware/connect"
)

func mountOverConnect(mux *http.ServeMux, locker *lock.Locker, service string, handler http.Handler) {
	const createProcedure = "/shop.v1.Orders/Create"

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, latch.WithErrorHandler(refuse))
	mux.Handle(service, auth.Require(handler))
	mux.Handle(createProcedure, auth.Require(once(handler)))
}

func ordersHandler(locker *lock.Locker, create connectCreate) http.Handler {
	patient := locker.With(lock.WithWait(10 * time.Second)) // a repeat waits for the first answer
	once := latchconnect.Once(patient, auth.UserID, latchconnect.IdempotencyKey)
	return auth.Require(connect.NewUnaryHandler(createMethod, create, connect.WithInterceptors(once)))
}

var refusals = connect.NewErrorWriter()

// refuse writes a refusal as an error of Connect.
func refuse(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
	if !refusals.IsSupported(r) {
		p.ServeHTTP(w, r)
		return
	}
	_, kind, _ := strings.Cut(p.Type, "#")
	code := connect.CodeInternal
	switch {
	case kind == "held", kind == "cooling-down":
		code = connect.CodeAborted // of a Lock: a repeat would be another submission
	case p.RetryAfter > 0:
		code = connect.CodeUnavailable // to be sent again, with the same key
	case p.Status == http.StatusUnauthorized:
		code = connect.CodeUnauthenticated
	case p.Status == http.StatusConflict:
		code = connect.CodeFailedPrecondition // a person, or a program, has to look first
	case p.Status < 500:
		code = connect.CodeInvalidArgument
	}
	err := connect.NewError(code, errors.New(p.Title))
	if detail, failed := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: strings.ToUpper(strings.ReplaceAll(kind, "-", "_")), Domain: "github.com/httplatch/httplatch"}); failed == nil {
		err.AddDetail(detail)
	}
	_ = refusals.Write(w, r, err)
}

var auth = struct {
	Require func(http.Handler) http.Handler
	UserID  func(context.Context) string
}{requireUser, userOf}

type userKey struct{}

func requireUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("X-User-ID")
		if user == "" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}

func reasonOf(t *testing.T, err error) string {
	t.Helper()
	var refused *connect.Error
	if !errors.As(err, &refused) || len(refused.Details()) == 0 {
		return ""
	}
	return strings.ReplaceAll(strings.ToLower(must.Get(refused.Details()[0].Value())(t).(*errdetails.ErrorInfo).GetReason()), "_", "-")
}

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
		parallel.Run(t, protocol, func(t *testing.T) {
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

// Each protocol gets refusals as its own errors. What a Lock refuses is not Unavailable, which clients repeat.
func TestConnectRefusals(t *testing.T) {
	t.Parallel()
	for protocol := range protocols {
		parallel.Run(t, protocol, func(t *testing.T) {
			arrived, finish := make(chan struct{}), make(chan struct{})
			locker, mux := newLocker(t, memstore.New(), lock.WithWait(0)), http.NewServeMux()
			onePerUser := latch.Lock(locker, "user", keyfunc.Context(auth.UserID), latch.WithErrorHandler(refuse))
			create := func(_ context.Context, order *connect.Request[text]) (*connect.Response[text], error) {
				if order.Msg.GetValue() == "slow" {
					close(arrived)
					<-finish
				}
				return connect.NewResponse(wrapperspb.String("created")), nil
			}
			mountOverConnect(mux, locker, "/shop.v1.Orders/", onePerUser(connect.NewUnaryHandler(createMethod, create)))
			call := serveConnect(t, mux)
			requireRefused := func(code connect.Code, reason, key, order string) {
				t.Helper()
				_, err := call(protocol, key, order)
				require.Equal(t, code, connect.CodeOf(err), err)
				require.Equal(t, reason, reasonOf(t, err))
			}
			requireRefused(connect.CodeInvalidArgument, "key-missing", "", "tea")
			must.Get(call(protocol, "a", "tea"))(t)
			requireRefused(connect.CodeInvalidArgument, "key-reused", "a", "coffee")

			first := make(chan error)
			go func() {
				_, err := call(protocol, "b", "slow")
				first <- err
			}()
			<-arrived
			requireRefused(connect.CodeUnavailable, "in-progress", "b", "slow")
			requireRefused(connect.CodeAborted, "held", "c", "tea")
			close(finish)
			require.NoError(t, <-first)
		})
	}
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

// A message with a map has other bytes each time. Idempotent compares bytes, and the interceptor compares messages.
func TestConnectComparesBytes(t *testing.T) {
	t.Parallel()
	create := func(context.Context, *connect.Request[structpb.Struct]) (*connect.Response[structpb.Struct], error) {
		return connect.NewResponse(&structpb.Struct{}), nil
	}
	idempotent := func(opts ...latch.IdempotentOption) http.Handler {
		opts = append(opts, latch.WithErrorHandler(refuse))
		return latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, opts...)(connect.NewUnaryHandler(createMethod, create))
	}
	for name, tt := range map[string]struct {
		handler http.Handler
		same    bool
	}{
		"Idempotent":                           {idempotent(), false},
		"Idempotent that compares nothing":     {idempotent(latch.WithFingerprint(keyfunc.Global)), true},
		"interceptor, which compares messages": {connect.NewUnaryHandler(createMethod, create, connect.WithInterceptors(latchconnect.Once(newLocker(t, memstore.New()), auth.UserID, latchconnect.IdempotencyKey))), true},
	} {
		parallel.Run(t, name, func(t *testing.T) {
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

// TestConnectStreamThatFails: a streaming call of Connect has its status at the end of its body, under 200, as gRPC-Web
// has. A failure that may be over is not repeated for a day, and a gateway passes the messages on as they come.
func TestConnectStreamThatFails(t *testing.T) {
	t.Parallel()
	for name, gateway := range map[string]bool{"around the handler": false, "around a gateway": true} {
		parallel.Run(t, name, func(t *testing.T) {
			var runs atomic.Int64
			came := make(chan struct{})
			handler := http.Handler(connect.NewServerStreamHandler(createMethod, func(ctx context.Context, _ *connect.Request[text], stream *connect.ServerStream[text]) error {
				runs.Add(1)
				if err := stream.Send(wrapperspb.String("placing it")); err != nil {
					return err
				}
				select {
				case <-came:
				case <-ctx.Done():
				}
				return connect.NewError(connect.CodeUnavailable, errFailed)
			}))
			if gateway {
				service := httptest.NewServer(handler)
				t.Cleanup(service.Close)
				target := must.Get(url.Parse(service.URL))(t)
				handler = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: latch.Upstream(nil)}
			}
			once := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, latch.WithErrorHandler(refuse))
			server := httptest.NewServer(auth.Require(once(handler)))
			t.Cleanup(server.Close)
			client := connect.NewClient[text, text](server.Client(), server.URL+createMethod)
			call := func() (messages int, err error) {
				request := connect.NewRequest(wrapperspb.String("tea"))
				request.Header().Set("X-User-ID", "42")
				request.Header().Set("Idempotency-Key", "k")
				stream := must.Get(client.CallServerStream(t.Context(), request))(t)
				for stream.Receive() {
					if messages++; messages == 1 {
						select {
						case <-came:
						default:
							close(came)
						}
					}
				}
				_ = stream.Close()
				return messages, stream.Err()
			}
			messages, err := call()
			require.Equal(t, 1, messages)
			require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err))
			messages, err = call()
			require.Zero(t, messages)
			require.Equal(t, connect.CodeFailedPrecondition, connect.CodeOf(err))
			require.Equal(t, "result-not-replayable", reasonOf(t, err))
			require.EqualValues(t, 1, runs.Load())
		})
	}
}
