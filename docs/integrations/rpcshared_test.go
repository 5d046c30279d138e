package integrations_test

import (
	"context"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/lock/memstore"
)

// TestSharedKeys: a call to a server of grpc-go and its repeat at one of connect-go, and the other way round, are one
// effect with one answer: message, error, header and trailer.
func TestSharedKeys(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	runs := 0
	rpc := serveGRPC(t, func(ctx context.Context, order *text) (*text, error) {
		runs++
		_ = grpc.SetHeader(ctx, metadata.Pairs("sum-bin", "\xff\x00", "order", "1"))
		if order.GetValue() == "sold out" {
			return nil, status.Error(codes.NotFound, "sold out")
		}
		return wrapperspb.String("created"), nil
	}, locker)
	overConnect := serveConnect(t, ordersHandler(locker, func(_ context.Context, order *connect.Request[text]) (*connect.Response[text], error) {
		runs++
		response := connect.NewResponse(wrapperspb.String("created"))
		response.Header().Set("Sum-Bin", connect.EncodeBinaryHeader([]byte("\xff\x00")))
		response.Header().Set("Order", "1")
		if order.Msg.GetValue() == "sold out" {
			return nil, connect.NewError(connect.CodeNotFound, errFailed)
		}
		return response, nil
	}))
	for order, code := range map[string]codes.Code{"tea": codes.OK, "sold out": codes.NotFound} {
		for _, first := range []string{"grpc-go", "connect-go"} {
			runs = 0
			one := func() {
				_, err := rpc(t.Context(), "42", first+order[:3], order)
				require.Equal(t, code, status.Code(err))
			}
			other := func() {
				for protocol := range protocols {
					response, err := overConnect(protocol, first+order[:3], order)
					if code != codes.OK {
						require.Equal(t, connect.Code(code), connect.CodeOf(err))
						continue
					}
					require.NoError(t, err)
					require.Equal(t, "created", response.Msg.GetValue())
					require.Equal(t, "1", response.Header().Get("Order"))
					sum, err := connect.DecodeBinaryHeader(response.Header().Get("Sum-Bin"))
					require.NoError(t, err)
					require.Equal(t, "\xff\x00", string(sum))
				}
			}
			if first == "grpc-go" {
				one()
			}
			other()
			one()
			require.Equal(t, 1, runs, first)
		}
	}
}
