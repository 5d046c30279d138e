package integrations_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// TestConnectStreamThatFails: a streaming call of Connect has its status at the end of its body, under 200, as gRPC-Web
// has. A failure that may be over is not repeated for a day, and a gateway passes the messages on as they come.
func TestConnectStreamThatFails(t *testing.T) {
	t.Parallel()
	for name, gateway := range map[string]bool{"around the handler": false, "around a gateway": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
				target, err := url.Parse(service.URL)
				require.NoError(t, err)
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
				stream, err := client.CallServerStream(t.Context(), request)
				require.NoError(t, err)
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
