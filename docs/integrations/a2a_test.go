package integrations_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/a2a"
	"github.com/a2aproject/a2a-go/a2aclient"
	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/a2asrv/eventqueue"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

type a2aShop struct{ orders atomic.Int64 }

func (s *a2aShop) Execute(ctx context.Context, asked *a2asrv.RequestContext, events eventqueue.Queue) error {
	text := a2a.TextPart{Text: fmt.Sprint("order ", s.orders.Add(1))}
	return events.Write(ctx, a2a.NewMessageForTask(a2a.MessageRoleAgent, asked, text))
}

func (*a2aShop) Cancel(context.Context, *a2asrv.RequestContext, eventqueue.Queue) error { return nil }

var a2aMethods = map[string]func(ctx context.Context, client *a2aclient.Client, m *a2a.MessageSendParams) (string, error){
	"message/send": func(ctx context.Context, client *a2aclient.Client, m *a2a.MessageSendParams) (string, error) {
		answer, err := client.SendMessage(ctx, m)
		if err != nil {
			return "", err
		}
		return textOf(answer), nil
	},
	"message/stream": func(ctx context.Context, client *a2aclient.Client, m *a2a.MessageSendParams) (string, error) {
		for event, err := range client.SendStreamingMessage(ctx, m) {
			if err != nil {
				return "", err
			}
			return textOf(event), nil
		}
		return "", io.ErrUnexpectedEOF
	},
}

func textOf(event a2a.Event) string { return event.(*a2a.Message).Parts[0].(a2a.TextPart).Text }

// TestA2ACutAtEveryByte: the official SDK sends a message over a connection that breaks off after each byte of
// the answer, and sends it again, with another id of JSON-RPC. The twin has no guard.
func TestA2ACutAtEveryByte(t *testing.T) {
	t.Parallel()
	for method, send := range a2aMethods {
		for name, bare := range map[string]bool{"guarded": false, "twin": true} {
			t.Run(method+" "+name, func(t *testing.T) {
				t.Parallel()
				var s a2aShop
				h := a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(&s))
				if !bare {
					locker := newLocker(t, memstore.New(), lock.WithWait(time.Minute))
					h = ofContracts(locker, keyfunc.Header("X-Agent-ID"))[1](h)
				}
				server := httptest.NewServer(h)
				t.Cleanup(server.Close)
				proxy := cutproxy.Start(t, server.URL)
				client, err := a2aclient.NewFromEndpoints(t.Context(), []a2a.AgentInterface{{URL: proxy.URL(), Transport: a2a.TransportProtocolJSONRPC}},
					a2aclient.WithJSONRPCTransport(agentClient()))
				require.NoError(t, err)
				lost, whole := 0, false
				for cut := 0; !whole && (!bare || cut < 150); cut++ {
					message := &a2a.MessageSendParams{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.TextPart{Text: "tea"})}
					proxy.Cut(cutproxy.Response, cut)
					text, err := send(t.Context(), client, message)
					whole = proxy.Waiting() // there was no more to cut off
					if err != nil {
						lost++
						text, err = send(t.Context(), client, message)
					}
					require.NoError(t, err, "cut after %d bytes", cut)
					if !bare {
						require.Equal(t, fmt.Sprint("order ", cut+1), text, "cut after %d bytes", cut)
						require.EqualValues(t, cut+1, s.orders.Load(), "cut after %d bytes", cut)
						if whole {
							break // the next answer would be cut
						}
						message.Message.Parts = a2a.ContentParts{a2a.TextPart{Text: "coffee"}}
						_, err = send(t.Context(), client, message)
						require.ErrorContains(t, err, "422", "another message with this messageId")
					}
				}
				t.Logf("%d answers lost, %d orders", lost, s.orders.Load())
				require.Greater(t, lost, 100)
				if bare {
					require.Greater(t, s.orders.Load(), int64(lost+100))
				}
			})
		}
	}
}
