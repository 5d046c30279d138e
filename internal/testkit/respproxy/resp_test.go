package respproxy_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

// replies are well-formed; each is one value that answers a command.
var replies = map[string]string{
	"simple":           "+OK\r\n",
	"error":            "-ERR no\r\n",
	"integer":          ":-7\r\n",
	"null":             "_\r\n",
	"boolean":          "#t\r\n",
	"double":           ",1.5e3\r\n",
	"big number":       "(3492890328409238509324850943850943825024385\r\n",
	"bulk":             "$5\r\na\r\nbc\r\n",
	"empty bulk":       "$0\r\n\r\n",
	"null bulk":        "$-1\r\n",
	"verbatim":         "=5\r\ntxt:x\r\n",
	"bulk error":       "!5\r\nERR x\r\n",
	"array":            "*2\r\n:1\r\n$1\r\na\r\n",
	"empty array":      "*0\r\n",
	"null array":       "*-1\r\n",
	"set":              "~2\r\n+a\r\n+b\r\n",
	"map":              "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n_\r\n",
	"nested":           "*1\r\n*1\r\n%1\r\n+k\r\n~1\r\n$-1\r\n",
	"attribute":        "|1\r\n+ttl\r\n:3\r\n+OK\r\n",
	"inner attribute":  "*2\r\n|1\r\n+a\r\n:1\r\n:2\r\n:3\r\n",
	"push in an array": "*1\r\n>1\r\n+a\r\n",
	"large":            "$100000\r\n" + strings.Repeat("x", 100_000) + "\r\n",
}

func TestReadReply(t *testing.T) {
	t.Parallel()
	for name, text := range replies {
		raw, push, rest, err := respproxy.ReadReply(text + "+next\r\n")
		require.NoError(t, err, name)
		require.Equal(t, text, raw, name)
		require.False(t, push, name)
		require.Equal(t, "+next\r\n", rest, name)
	}
	for _, text := range []string{">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n", "|1\r\n+a\r\n+b\r\n>1\r\n+x\r\n"} {
		raw, push, _, err := respproxy.ReadReply(text)
		require.NoError(t, err, text)
		require.Equal(t, text, raw)
		require.True(t, push, text)
	}
}

func TestReadCommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"*1\r\n$4\r\nPING\r\n":                     {"PING"},
		"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n":      {"GET", "a\r\nb"},
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n": {"SET", "k", ""},
		"PING\r\n":      {"PING"},
		"  set k  v \n": {"set", "k", "v"},
		"\r\n":          nil,
		"\n":            nil,
		"*0\r\n":        nil,
		"*-1\r\n":       nil,
	} {
		args, raw, rest, err := respproxy.ReadCommand(text + "next")
		require.NoError(t, err, text)
		require.Equal(t, want, args, text)
		require.Equal(t, text, raw)
		require.Equal(t, "next", rest)
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no type":            "hello\r\n",
		"empty line":         "\r\n",
		"bulk too long":      "$99999999\r\n",
		"length overflows":   "$99999999999999999999\r\n",
		"negative length":    "$-2\r\n",
		"signed length":      "$+2\r\nab\r\n",
		"no length":          "$\r\n",
		"hexadecimal":        "$0x2\r\nab\r\n",
		"length without CR":  "$2\nab\r\n",
		"wrong end":          "$2\r\nabc\r\n",
		"streamed":           "$?\r\n",
		"streamed array":     "*?\r\n",
		"endless line":       "+" + strings.Repeat("x", 70_000),
		"too deep":           strings.Repeat("*1\r\n", 40) + ":1\r\n",
		"too deep attribute": strings.Repeat("|0\r\n", 40) + ":1\r\n",
	} {
		_, _, _, err := respproxy.ReadReply(text)
		require.ErrorIs(t, err, respproxy.ErrProtocol, name)
	}
	for name, text := range map[string]string{
		"argument is no bulk": "*1\r\n:1\r\n",
		"null argument":       "*1\r\n$-1\r\n",
		"too many arguments":  "*2000000\r\n",
		"no count":            "*\r\n",
	} {
		_, _, _, err := respproxy.ReadCommand(text)
		require.ErrorIs(t, err, respproxy.ErrProtocol, name)
	}
}

// TestReadIsBounded: a promise of memory costs none. Not parallel: it measures.
func TestReadIsBounded(t *testing.T) {
	for _, text := range []string{
		"$60000000\r\n", "*1000000000\r\n", "%1000000000\r\n", "*1000000000\r\n:1\r\n", "*2\r\n$60000000\r\n",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, _, err := respproxy.ReadReply(text)
		runtime.ReadMemStats(&after)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, text)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(512<<10), text)
	}
}

// FuzzReader: for any input, the reader neither panics nor hangs, and it
// returns accepted bytes unchanged and complete.
func FuzzReader(f *testing.F) {
	for _, text := range replies {
		if len(text) < 1000 { // the fuzzer would spend its time on making the large one smaller
			f.Add(text)
		}
	}
	for _, text := range []string{
		"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n", "PING\r\n", "*-1\r\n", ">1\r\n+x\r\n", "$99999999\r\n", "*1000000000\r\n:1\r\n",
		"$-2\r\n", "|1\r\n", "%1\r\n+a\r\n", "*1\r\n$2\r\nabc", "\x00\xff\r\n", "$5\r\nab",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if raw, push, rest, err := respproxy.ReadReply(text); err == nil {
			require.Equal(t, text, raw+rest)
			require.NotEmpty(t, raw)
			again, samePush, rest, err := respproxy.ReadReply(raw)
			require.NoError(t, err)
			require.Equal(t, raw, again)
			require.Equal(t, push, samePush)
			require.Empty(t, rest)
		}
		if args, raw, rest, err := respproxy.ReadCommand(text); err == nil {
			require.Equal(t, text, raw+rest)
			size := 0
			for _, a := range args {
				size += len(a)
			}
			require.LessOrEqual(t, size, len(raw))
		}
	})
}

// TestPushIsNoReply: an invalidation that arrives before the reply to a command
// is not mistaken for the reply.
func TestPushIsNoReply(t *testing.T) {
	t.Parallel()
	s, p := started(t)
	conn := dial(t, p.Addr())
	say(t, conn, "HELLO 3\r\n")
	buf := make([]byte, 4096)
	_, err := conn.Read(buf)
	require.NoError(t, err)
	require.Equal(t, byte('%'), buf[0])
	s.Do(t, "DEL", "pushed")
	say(t, conn, "CLIENT TRACKING ON\r\nGET pushed\r\n")
	hear(t, conn, "+OK\r\n_\r\n")

	rule := p.On(respproxy.Match{Name: "blpop"}, respproxy.ReplyErrorAfterApply("ERR forged"))
	say(t, conn, "BLPOP push-list 10\r\nPING\r\n")
	require.Eventually(t, func() bool { return p.Commands("blpop") == 1 }, patience, time.Millisecond)
	s.Do(t, "SET", "pushed", "v")
	hear(t, conn, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$6\r\npushed\r\n")
	s.Do(t, "LPUSH", "push-list", "v")
	hear(t, conn, "-ERR forged\r\n+PONG\r\n")
	require.Equal(t, 1, rule.Hits())
	require.EqualValues(t, 0, s.Do(t, "LLEN", "push-list"), "it was applied")
}

func TestSubscriptionsPass(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		s, p := started(t)
		c := redis.NewClient(&redis.Options{Addr: p.Addr(), Protocol: protocol})
		sub := c.Subscribe(t.Context(), t.Name())
		_, err := sub.Receive(t.Context())
		require.NoError(t, err)
		s.Do(t, "PUBLISH", t.Name(), "hello")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		m, err := sub.ReceiveMessage(ctx)
		cancel()
		require.NoError(t, err)
		require.Equal(t, "hello", m.Payload)
		require.NoError(t, sub.Close())
		require.NoError(t, c.Close())
	}
}

func TestTypesPass(t *testing.T) {
	t.Parallel()
	for _, protocol := range []int{2, 3} {
		_, p := started(t)
		c := redis.NewClient(&redis.Options{Addr: p.Addr(), Protocol: protocol})
		ctx, key := t.Context(), key(t)
		require.NoError(t, c.HSet(ctx, key+"h", "f", "v", "g", "w").Err())
		require.Equal(t, map[string]string{"f": "v", "g": "w"}, c.HGetAll(ctx, key+"h").Val())
		require.NoError(t, c.ZAdd(ctx, key+"z", redis.Z{Score: 1.5, Member: "m"}).Err())
		require.Equal(t, []redis.Z{{Score: 1.5, Member: "m"}}, c.ZRangeWithScores(ctx, key+"z", 0, -1).Val())
		require.NoError(t, c.SAdd(ctx, key+"s", "a").Err())
		require.Equal(t, []string{"a"}, c.SMembers(ctx, key+"s").Val())
		require.ErrorIs(t, c.Get(ctx, key+"none").Err(), redis.Nil)
		cmds, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Incr(ctx, key+"n")
			p.Incr(ctx, key+"n")
			return nil
		})
		require.NoError(t, err)
		require.Len(t, cmds, 2)
		require.NotEmpty(t, c.Info(ctx).Val())
		require.NoError(t, c.Close())
	}
}

// TestBadClient: bytes that are not a command end their connection, and no other.
func TestBadClient(t *testing.T) {
	t.Parallel()
	_, p := started(t)
	good := bare(t, p.Addr())
	for _, text := range []string{"*1\r\n:1\r\n", "$99999999999\r\n*9999999999\r\n", "*1\r\n$999999999\r\n"} {
		conn := dial(t, p.Addr())
		say(t, conn, text)
		reply := make([]byte, 1)
		_, err := conn.Read(reply)
		var timeout net.Error
		require.NotErrorAs(t, err, &timeout)
		require.NoError(t, good.Ping(t.Context()).Err())
	}
}
