package integrations_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/lock"
)

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

func TestConnectStorm(t *testing.T) {
	t.Parallel()
	tests := []struct{ guard, protocol string }{
		{"Idempotent", "Connect"},
		{"nothing", "Connect"},
		{"interceptor", "gRPC"},
		{"interceptor", "gRPC-Web"},
		{"nothing", "gRPC"},
	}
	locker, _ := overRedis(t)
	for _, tt := range tests {
		t.Run(tt.guard+" "+tt.protocol, func(t *testing.T) {
			t.Parallel()
			s, ids := newStorm(t), messages(60)
			create := func(ctx context.Context, order *connect.Request[text]) (*connect.Response[text], error) {
				if err := s.work(ctx, order.Msg.GetValue()); err != nil {
					return nil, connect.NewError(connect.CodeUnavailable, err)
				}
				return connect.NewResponse(wrapperspb.String("created " + order.Msg.GetValue())), nil
			}
			h := http.Handler(connect.NewUnaryHandler(createMethod, create))
			switch tt.guard {
			case "Idempotent":
				h = guardedConnect(locker, create)
			case "interceptor":
				h = ordersHandler(locker, create)
			}
			call := serveConnect(t, h)
			answers := sendTwice(t, ids, func(id string) (string, bool) {
				response, err := call(tt.protocol, tt.protocol+id, id)
				if err == nil {
					return response.Msg.GetValue(), false
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.committed[id] { // it has failed after its effect, for good
					return "created " + id, false
				}
				return "", true
			})
			if tt.guard == "nothing" {
				require.NotEmpty(t, s.outcome(ids).doubled)
				return
			}
			s.requireExact(t, ids)
			for _, id := range ids {
				require.Equal(t, []string{"created " + id, "created " + id}, answers[id])
			}
		})
	}
}
