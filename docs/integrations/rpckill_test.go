package integrations_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

const retryUnavailable = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
	"initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// beServer serves orders by MCP, gRPC or Connect until it is killed. "bare" has no guard, and "hang" does not
// answer after the order is placed.
func beServer(kind, url string) error {
	if strings.HasPrefix(kind, "mcp") {
		return beMCP(kind, url)
	}
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	bare, hang := strings.Contains(kind, "bare"), strings.Contains(kind, "hang")
	place := func(ctx context.Context, customer string) (string, error) {
		const insert = `INSERT INTO orders (customer) VALUES ($1) RETURNING id`
		var id int64
		var err error
		if tx, ok := pgstore.Tx(ctx); ok {
			err = tx.QueryRow(ctx, insert, customer).Scan(&id)
		} else {
			err = pool.QueryRow(ctx, insert, customer).Scan(&id)
		}
		if err != nil {
			return "", err
		}
		if hang {
			_, _ = os.Stdout.WriteString("placed\n")
			select {}
		}
		return fmt.Sprint("order of ", customer), nil
	}
	locker := lock.New(pgstore.New(pool), lock.WithTransaction(), lock.WithLease(4*time.Second), lock.WithBudget(2*time.Second))
	_, _ = fmt.Fprintln(os.Stdout, listener.Addr())
	if strings.HasPrefix(kind, "grpc") {
		server := newServer(locker, unguarded, callerOf)
		if bare {
			server = grpc.NewServer(grpc.UnaryInterceptor(unguarded))
		}
		server.RegisterService(&ordersService, createFunc(func(ctx context.Context, order *text) (*text, error) {
			answer, err := place(ctx, order.GetValue())
			return wrapperspb.String(answer), err
		}))
		return server.Serve(listener)
	}
	create := func(ctx context.Context, order *connect.Request[text]) (*connect.Response[text], error) {
		answer, err := place(ctx, order.Msg.GetValue())
		return connect.NewResponse(wrapperspb.String(answer)), err
	}
	h := ordersHandler(locker, create)
	if bare {
		h = connect.NewUnaryHandler(createMethod, create)
	}
	return http.Serve(listener, h)
}

// startServer returns the address of a server in another process.
func startServer(t *testing.T, kind, url string) (addr string, placed, kill func()) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), workerOver+"=rpc-"+kind+" "+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	return lines.Text(), func() { require.True(t, lines.Scan()) }, kill
}

// TestKilledServer: a server is killed after its effect, and another one gets the call that its client sends
// again: one order. Without the guard there are two.
func TestKilledServer(t *testing.T) {
	testmain.SkipIn(t, testmain.Short, "starts a database, and waits for the lease of a killed server")
	t.Parallel()
	for kind, orders := range map[string]int{"grpc": 1, "grpc-bare": 2, "connect": 1, "connect-bare": 2} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := pgtest.DatabaseURL(t)
			pool, err := pgxpool.New(t.Context(), url)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			_, err = pool.Exec(t.Context(), pgstore.Schema+`;CREATE TABLE orders (id bigserial, customer text)`)
			require.NoError(t, err)
			addr, placed, kill := startServer(t, kind+"-hang", url)
			proxy := cutproxy.Start(t, addr)
			answers := make(chan string)
			send := caller(t, kind, proxy.Addr())
			go func() {
				answer, err := send()
				for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					answer, err = send()
				}
				answers <- answer
			}()
			placed()
			kill()
			addr, _, _ = startServer(t, kind, url)
			proxy.To(addr)
			require.Equal(t, "order of 42", <-answers)
			var rows int
			require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM orders`).Scan(&rows))
			require.Equal(t, orders, rows)
		})
	}
}

// caller returns a function that sends the same order each time. The retry policy of gRPC sends it again, too.
func caller(t *testing.T, kind, addr string) func() (string, error) {
	t.Helper()
	if strings.HasPrefix(kind, "grpc") {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(retryUnavailable))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return func() (string, error) { return invoke(t.Context(), conn, "42", "k", "42") }
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := connect.NewClient[text, text](&http.Client{Transport: transport}, "http://"+addr+createMethod)
	return func() (string, error) {
		req := connect.NewRequest(wrapperspb.String("42"))
		req.Header().Set("X-User-ID", "42")
		req.Header().Set("Idempotency-Key", "k")
		resp, err := client.CallUnary(t.Context(), req)
		if err != nil {
			return "", err
		}
		return resp.Msg.GetValue(), nil
	}
}
