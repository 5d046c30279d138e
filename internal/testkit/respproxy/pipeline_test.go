package respproxy_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

// TestPipelines: a rule acts on the fifth of ten commands, and every other one
// gets its own answer or the end of the connection. By hand, because go-redis
// gives an error of the connection to the answered commands of a pipeline too.
func TestPipelines(t *testing.T) {
	t.Parallel()
	const four, all = ":1\r\n:2\r\n:3\r\n:4\r\n", ":1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n:9\r\n:10\r\n"
	for _, tt := range []struct {
		name    string
		action  respproxy.Action
		answers string
		ends    bool // or stays open and silent
		applied int
	}{
		{"pass", respproxy.Action{}, all, false, 10},
		{"error", respproxy.ReplyError("OOM x"), four + "-OOM x\r\n:5\r\n:6\r\n:7\r\n:8\r\n:9\r\n", false, 9},
		{"error after apply", respproxy.ReplyErrorAfterApply("OOM x"), four + "-OOM x\r\n:6\r\n:7\r\n:8\r\n:9\r\n:10\r\n", false, 10},
		{"delay", respproxy.DelayReply(soon), all, false, 10},
		{"hold", respproxy.HoldFor(soon), all, false, 10},
		{"cut", respproxy.CutReply(2), four + ":5", true, 10},
		{"swallow, close", respproxy.Swallow(respproxy.Close), four, true, 10},
		{"swallow, hang", respproxy.Swallow(respproxy.Hang), four, false, 10},
		{"swallow, reset", respproxy.Swallow(respproxy.Reset), "", true, 10},
		{"drop, close", respproxy.Drop(respproxy.Close), four, true, 4},
		{"drop, hang", respproxy.Drop(respproxy.Hang), four, false, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, p := started(t)
			key := key(t)
			rule := p.On(respproxy.Match{Name: "incr", Skip: 4, Count: 1}, tt.action)
			conn := dial(t, p.Addr())
			say(t, conn, strings.Repeat("INCR "+key+"\r\n", 10))
			hear(t, conn, tt.answers)
			if !tt.ends {
				require.NoError(t, conn.SetReadDeadline(time.Now().Add(readTimeout)))
			}
			_, err := conn.Read(make([]byte, 1))
			switch {
			case tt.action == respproxy.Swallow(respproxy.Reset):
				// Earlier replies may have come or not.
			case tt.ends:
				requireEOF(t, err)
			default:
				requireTimeout(t, err)
			}

			rule.WaitLanded(t)
			require.Eventually(t, func() bool {
				return s.Do(t, "GET", key) == strconv.Itoa(tt.applied)
			}, patience, time.Millisecond)
			require.Equal(t, tt.applied, p.Commands("incr"))
		})
	}
}
