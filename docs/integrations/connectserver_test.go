package integrations_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
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
