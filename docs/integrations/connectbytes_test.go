package integrations_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	latchconnect "github.com/httplatch/httplatch/middleware/connect"
)

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
