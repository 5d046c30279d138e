package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// neighbors claims and releases keys of its own over s until stop is called, which returns how many claims
// were granted. A reply to the command of another caller is an error.
func neighbors(t *testing.T, s *redisstore.Store, n int) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var granted atomic.Int32
	for i := range n {
		key := member(t, i)
		all.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				token := fmt.Sprint(i, ".", j)
				e, err := s.Claim(timeout(t, patience), key, claim(token))
				if err != nil {
					continue // released by a later claim of the token's holder, or not taken
				}
				if !strings.HasPrefix(e.Token, fmt.Sprint(i, ".")) {
					t.Errorf("caller %d has got the reply to another one: %q", i, e.Token)
				}
				if e.Token == token {
					granted.Add(1)
				}
				_, _ = s.Forget(timeout(t, patience), key, e.Token)
			}
		})
	}
	return func() int {
		cancel()
		all.Wait()
		return int(granted.Load())
	}
}

// A connection may end after every byte of a command: the command is unknown, was not applied, and
// no other caller gets a wrong reply.
func TestCommandsThatAreCut(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "cuts a command after each of its bytes")
	t.Parallel()
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	s := open(t, p.URL())
	stop := neighbors(t, s, 3)
	for n := range 140 {
		key := fmt.Sprintf("cut=%d", n)
		cut := p.On(respproxy.Match{Name: "set", Key: entryName(key), Count: 1}, respproxy.CutCommand(n))
		_, err := s.Claim(timeout(t, patience), key, claim("tok"))
		cut.Wait(t, 1)
		requireUnknown(t, err, "connection")
		require.Empty(t, srv.Keys(t, entryName(key)))
	}
	require.Positive(t, stop())
}

// The same for every byte of a reply. The command was applied.
func TestRepliesThatAreCut(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "cuts a reply after each of its bytes")
	t.Parallel()
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	s := open(t, p.URL())
	stop := neighbors(t, s, 3)
	take(t, s, "k", claim("a"))
	for n := range 64 {
		cut := p.On(respproxy.Match{Name: "set", Key: entryName("k"), Count: 1}, respproxy.CutReply(n))
		_, err := s.Claim(timeout(t, patience), "k", claim("b"))
		cut.Wait(t, 1)
		requireUnknown(t, err, "connection")
	}
	e, err := s.Get(timeout(t, patience), "k")
	require.NoError(t, err)
	require.Equal(t, "a", e.Token)
	require.Positive(t, stop())
}

// Replies may come in pieces of any size, also of 16 MB.
func TestRepliesInPieces(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := respproxy.Start(t, srv.Addr())
	s := open(t, p.URL())
	receipt := strings.Repeat("r\r\n$1", 16<<20/5)
	take(t, s, "large", claim("a"))
	ok, err := s.Settle(timeout(t, 6*patience), "large", claim("a"), []byte(receipt), time.Hour)
	require.NoError(t, err)
	require.True(t, ok)
	for _, size := range []int{1, 2, 3, 7, 20} {
		pieces := p.On(respproxy.Match{Name: "set|evalsha"}, respproxy.SplitReply(size))
		stop := neighbors(t, s, 8)
		for range 20 {
			take(t, s, "k", claim("a"))
			release(t, s, "k", "a")
		}
		require.Positive(t, stop())
		pieces.Remove()
	}
	p.On(respproxy.Match{Name: "set"}, respproxy.SplitReply(100_001))
	e, err := s.Claim(timeout(t, 6*patience), "large", claim("b"))
	require.NoError(t, err)
	require.Equal(t, lock.Settled, e.State)
	require.Equal(t, receipt, string(e.Receipt))
}

// A reply that does not fit the command, or is none of RESP 2, ends as unknown, and the next command
// gets its own.
func TestRepliesOfAnotherType(t *testing.T) {
	t.Parallel()
	p := respproxy.Start(t, redistest.Start(t).Addr())
	s := open(t, p.URL())
	for _, reply := range []string{
		":5\r\n", "*0\r\n", "*1\r\n$-1\r\n", // of another type
		"_\r\n", "#t\r\n", ">1\r\n+x\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "$-9\r\n", "$99999999999\r\n",
	} {
		odd := p.On(respproxy.Match{Name: "set", Key: nameOf(t), Count: 1}, respproxy.Reply(reply))
		_, err := s.Claim(timeout(t, patience), keyFor(t), claim("a"))
		requireUnknown(t, err, "answer")
		odd.Wait(t, 1)
		take(t, s, keyFor(t), claim("a"))
		release(t, s, keyFor(t), "a")
	}
}

// What an operator does to a server, or a server to its clients, costs calls at most, and none of
// their keys: each has one holder at a time, and is free at the end.
func TestServersThatCutTheirClientsOff(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for servers that pause")
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, srv *redistest.Server){
		"kill": func(t *testing.T, srv *redistest.Server) {
			t.Helper()
			for range 50 {
				srv.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				time.Sleep(5 * time.Millisecond)
			}
		},
		"pause": func(t *testing.T, srv *redistest.Server) {
			t.Helper()
			for range 4 {
				srv.Do(t, "CLIENT", "PAUSE", 200, "ALL")
				time.Sleep(300 * time.Millisecond)
			}
		},
		"output buffer": func(t *testing.T, srv *redistest.Server) {
			t.Helper()
			srv.Do(t, "CONFIG", "SET", "client-output-buffer-limit", "normal 1 1 1")
			time.Sleep(200 * time.Millisecond)
			srv.Do(t, "CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0")
		},
		"restart": func(t *testing.T, srv *redistest.Server) {
			t.Helper()
			for range 3 {
				srv.Kill()
				srv.Restart(t)
				time.Sleep(100 * time.Millisecond)
			}
		},
		"shutdown": func(t *testing.T, srv *redistest.Server) {
			t.Helper()
			client := srv.Client(t)
			for range 3 {
				_ = client.ShutdownNoSave(timeout(t, patience)).Err() // the connection ends
				srv.Restart(t)
				time.Sleep(100 * time.Millisecond)
			}
		},
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", TLS ", secure), func(t *testing.T) {
				t.Parallel()
				srv := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
				url := srv.URL()
				if secure {
					url = "rediss://" + terminateTLS(t, srv.Addr()) + "?skip_verify=true"
				}
				s := open(t, url)
				l := lock.New(s, lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithBudget(2*time.Second), lock.WithLease(time.Minute), lock.WithWait(patience))
				ctx, stop := context.WithCancel(t.Context())
				var all sync.WaitGroup
				var holders [4]atomic.Int32
				var served atomic.Int32
				for i := range 16 {
					all.Go(func() {
						for ctx.Err() == nil {
							_ = l.Do(ctx, member(t, i%len(holders)), func(context.Context) error {
								if holders[i%len(holders)].Add(1) > 1 {
									t.Error("two holders")
								}
								holders[i%len(holders)].Add(-1)
								served.Add(1)
								return nil
							})
						}
					})
				}
				harm(t, srv)
				before := served.Load()
				require.Eventually(t, func() bool { return served.Load() > before+100 }, patience, time.Millisecond)
				stop()
				all.Wait()
				require.NoError(t, l.Close(timeout(t, patience)))
				require.Eventually(t, func() bool { return len(srv.Keys(t)) == 0 }, patience, time.Millisecond)
			})
		}
	}
}

// Nothing is left of a store that was closed, and little of many that were not used.
func TestStoresLeaveNothing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	client := srv.Client(t)
	connections := func() int {
		text, _ := srv.Do(t, "CLIENT", "LIST", "TYPE", "normal").(string)
		return strings.Count(text, "\n")
	}
	before := connections()
	begun := labelGoroutines(t)
	for range 10_000 {
		_ = redisstore.New(client)
	}
	require.LessOrEqual(t, connections(), before+1)
	s := redisstore.New(client)
	stop := neighbors(t, s, 100)
	require.Eventually(t, func() bool { return connections() > before }, patience, time.Millisecond)
	stop()
	require.NoError(t, s.Close())
	require.Empty(t, begun.left())
	require.Eventually(t, func() bool { return connections() <= before+1 }, patience, 5*time.Millisecond)
}
