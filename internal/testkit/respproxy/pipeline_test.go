package respproxy_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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

// TestPipelineThatIsWrittenBeforeItIsRead is larger than all buffers on the
// way in both directions.
func TestPipelineThatIsWrittenBeforeItIsRead(t *testing.T) {
	t.Parallel()
	_, p := started(t)
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, WriteTimeout: 20 * time.Second, ReadTimeout: 20 * time.Second})
	defer func() { require.NoError(t, c.Close()) }()
	const n, size = 200, 100_000
	var echoes []*redis.StringCmd
	_, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range n {
			echoes = append(echoes, pipe.Echo(t.Context(), strconv.Itoa(i)+strings.Repeat("x", size)))
		}
		return nil
	})
	require.NoError(t, err)
	for i, e := range echoes {
		require.True(t, strings.HasPrefix(e.Val(), strconv.Itoa(i)+"x"), i)
	}
}

// TestLoad: many connections and every action at random; the replies that
// clients got are true of the server.
func TestLoad(t *testing.T) {
	t.Parallel()
	s, p := started(t)
	key := key(t)
	actions := []respproxy.Action{
		{},
		respproxy.Swallow(respproxy.Close), respproxy.Swallow(respproxy.Reset),
		respproxy.Drop(respproxy.Close), respproxy.Drop(respproxy.Reset), respproxy.CutReply(1),
		respproxy.ReplyError("no"), respproxy.ReplyErrorAfterApply("no"),
		respproxy.DelayReply(time.Millisecond), respproxy.HoldFor(time.Millisecond),
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, a := range actions {
		for range 5 {
			p.On(respproxy.Match{Name: "incr", Skip: rng.IntN(500), Count: 1 + rng.IntN(5)}, a)
		}
	}
	c := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, ReadTimeout: patience, PoolSize: 16})
	defer func() { require.NoError(t, c.Close()) }()
	var mu sync.Mutex
	seen := map[int64]bool{} // every answer is the answer to one command
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 50 {
				n, err := c.Incr(context.WithoutCancel(t.Context()), key).Result()
				if err != nil {
					continue
				}
				mu.Lock()
				if seen[n] {
					t.Errorf("%d was answered twice", n)
				}
				seen[n] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	total := p.Commands("incr")
	require.Equal(t, strconv.Itoa(total), s.Do(t, "GET", key))
	require.Greater(t, total, len(seen), "some replies were lost")
	require.Less(t, total, 800, "some requests were lost")
}
