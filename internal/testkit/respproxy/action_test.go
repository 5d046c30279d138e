package respproxy_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

func requireEOF(t require.TestingT, err error, _ ...any) {
	require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), "%v", err)
}

func requireText(text string) require.ErrorAssertionFunc {
	return func(t require.TestingT, err error, _ ...any) {
		var reply redis.Error
		require.ErrorAs(t, err, &reply)
		require.EqualError(t, err, text)
	}
}

// TestActions checks the reply that the client gets, and the value that the server has.
func TestActions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		action  respproxy.Action
		sees    require.ErrorAssertionFunc
		applied bool
		hangs   bool
	}{
		{"pass", respproxy.Action{}, require.NoError, true, false},
		{"swallow, close", respproxy.Swallow(respproxy.Close), requireEOF, true, false},
		{"swallow, reset", respproxy.Swallow(respproxy.Reset), requireResetOrEOF, true, false},
		{"swallow, hang", respproxy.Swallow(respproxy.Hang), requireTimeout, true, true},
		{"drop, close", respproxy.Drop(respproxy.Close), requireEOF, false, false},
		{"drop, reset", respproxy.Drop(respproxy.Reset), requireResetOrEOF, false, false},
		{"drop, hang", respproxy.Drop(respproxy.Hang), requireTimeout, false, true},
		{"cut of the command", respproxy.CutCommand(3), requireEOF, false, false},
		{"cut beyond the command", respproxy.CutCommand(1000), requireEOF, false, false},
		{"pieces", respproxy.SplitReply(1), require.NoError, true, false},
		{"other reply", respproxy.Reply(":1\r\n"), require.NoError, false, false},
		{"cut", respproxy.CutReply(3), requireEOF, true, false},
		{"cut of nothing", respproxy.CutReply(0), requireEOF, true, false},
		{"cut beyond the reply", respproxy.CutReply(1000), requireEOF, true, false},
		{"error", respproxy.ReplyError("upstream failure"), requireText("upstream failure"), false, false},
		{"error after apply", respproxy.ReplyErrorAfterApply("upstream failure"), requireText("upstream failure"), true, false},
		{"delay", respproxy.DelayReply(soon), require.NoError, true, false},
		{"delay beyond the timeout", respproxy.DelayReply(time.Hour), requireTimeout, true, true},
		{"hold, never delivered", respproxy.Hold(), requireTimeout, false, true},
		{"hold, in time", respproxy.HoldFor(soon), require.NoError, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, p := started(t)
			key := key(t)
			c := bare(t, p.Addr())
			if tt.hangs {
				c = impatient(t, p.Addr())
			}
			require.NoError(t, c.Ping(t.Context()).Err())
			rule := p.On(respproxy.Match{Name: "SET", Key: key, Count: 1}, tt.action)

			tt.sees(t, c.Set(t.Context(), key, "first", 0).Err())
			rule.Wait(t, 1)
			require.Equal(t, 1, rule.Hits())
			want, sets := any(nil), 0
			if tt.applied {
				want, sets = "first", 1
			}
			if tt.hangs { // the proxy need not be as quick to forward it as the client to give up
				require.Eventually(t, func() bool { return s.Do(t, "GET", key) == want }, patience, time.Millisecond)
			}
			require.Equal(t, want, s.Do(t, "GET", key))
			require.Equal(t, sets, p.Commands("set"))

			// The client and other connections go on, and get their own answers.
			require.Eventually(t, func() bool { return c.Set(t.Context(), key+"2", "second", 0).Err() == nil }, patience, time.Millisecond)
			require.Eventually(t, func() bool { return c.Get(t.Context(), key+"2").Val() == "second" }, patience, time.Millisecond)
			require.NoError(t, bare(t, p.Addr()).Set(t.Context(), key, "third", 0).Err())
			require.Equal(t, 1, rule.Hits())
			require.Equal(t, "third", s.Do(t, "GET", key))
		})
	}
}

func TestHoldThenDeliver(t *testing.T) {
	t.Parallel()
	s, p := started(t)
	key := key(t)
	rule := p.On(respproxy.Match{Name: "set", Count: 2}, respproxy.Hold())
	for i := range 2 {
		conn := dial(t, p.Addr())
		say(t, conn, "SET "+key+" late\r\n")
		rule.Wait(t, i+1)
		require.NoError(t, conn.Close(), "the client is gone for good")
	}
	require.Nil(t, s.Do(t, "GET", key))
	require.Equal(t, 0, p.Commands("set"))

	other := bare(t, p.Addr())
	require.NoError(t, other.Set(t.Context(), key, "in time", 0).Err(), "other connections go on")

	require.Equal(t, 2, rule.Deliver(t))
	require.Equal(t, "late", s.Do(t, "GET", key), "the answer was awaited")
	require.Equal(t, 3, p.Commands("set"))
	require.Equal(t, 0, rule.Deliver(t), "once")
}
