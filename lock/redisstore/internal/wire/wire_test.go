package wire_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// What ends a lease is written before what claims one, though it came later.
func TestEndsBeforeClaims(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{way: always(8 * time.Millisecond)}
		s := warm(t, f)
		const window, each = 64, 10
		var all sync.WaitGroup
		go1 := func(name string, yields bool) {
			all.Go(func() { assert.NoError(t, ask(t.Context(), t, s, name, yields)) })
			synctest.Wait()
		}
		for range window {
			go1("first", true)
		}
		for range 2 * window {
			go1("claim", true)
		}
		for range each {
			go1("end", false)
		}
		_, queued := s.Pending()
		require.Equal(t, 2*window+each, queued)
		all.Wait()
		next := f.arrived()[window : 2*window] // over several connections, in no order
		ends := len(next) - len(slices.DeleteFunc(next, func(name string) bool { return name == "end" }))
		require.Equal(t, each, ends)
	})
}

// A command that has not left the queue is taken back, and one that is written is unknown. Its late
// reply is noted.
func TestCallersThatLeave(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{way: always(8 * time.Millisecond)}
		s := warm(t, f)
		const window = 64
		ctx, leave := context.WithCancel(t.Context())
		sender := newSender()
		calls := make([]send.Call, window+5)
		var all sync.WaitGroup
		var certain, unknown int
		var mu sync.Mutex
		for i := range calls {
			all.Go(func() {
				err := send.Do(ctx, sender, &calls[i], send.Terms{Budget: time.Second}, request(func(ctx context.Context) error {
					err := ask(ctx, t, s, strconv.Itoa(i), true)
					mu.Lock()
					defer mu.Unlock()
					if errors.Is(err, lock.ErrNotApplied) {
						certain++
					} else if err != nil {
						unknown++
					}
					return err
				}))
				assert.ErrorIs(t, err, context.Canceled)
			})
			synctest.Wait()
		}
		leave()
		all.Wait()
		require.Equal(t, 5, certain)
		require.Equal(t, window, unknown)
		require.Equal(t, window, sender.Sends.Count(), "in flight")
		time.Sleep(20 * time.Millisecond)
		require.Zero(t, sender.Sends.Count())
		require.Equal(t, 1, calls[0].Flight.Doubt().Answered)
		require.Zero(t, calls[0].Flight.Doubt().Unanswered)
		require.Len(t, f.arrived(), window)
	})
}

// A command in the queue whose caller has gone is not written, also if its turn comes before the next tick.
func TestNothingIsWrittenForCallersThatHaveLeft(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{way: always(3 * time.Millisecond)}
		s := warm(t, f)
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() { assert.NoError(t, ask(t.Context(), t, s, strconv.Itoa(i), true)) })
		}
		synctest.Wait()
		all.Go(func() { assert.ErrorIs(t, ask(ctx, t, s, "left", true), lock.ErrNotApplied) })
		synctest.Wait()
		leave()
		all.Wait()
		require.NotContains(t, f.arrived(), "left")
	})
}

// When a connection ends, its line is unknown, and commands behind it are sent over another.
func TestConnectionThatEnds(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{way: always(5 * time.Millisecond)}
		s := warm(t, f)
		const window, callers = 64, 80
		errs := make([]error, callers)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() { errs[i] = ask(t.Context(), t, s, strconv.Itoa(i), false) })
			synctest.Wait()
		}
		_ = f.connections()[0].Close()
		all.Wait()
		lost := 0
		for i, err := range errs {
			if err == nil {
				continue
			}
			lost++
			require.Less(t, i, window)
			require.NotErrorIs(t, err, lock.ErrNotApplied)
		}
		require.GreaterOrEqual(t, lost, window-2)
	})
}

// A connection on which anything else comes than the replies that are due is closed.
func TestConnectionsThatSpeakOtherwise(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"two replies":        ":1\r\n:2\r\n",
		"push of RESP 3":     ">2\r\n$10\r\ninvalidate\r\n*0\r\n",
		"null of RESP 3":     "_\r\n",
		"map of RESP 3":      "%1\r\n+a\r\n+b\r\n",
		"HTTP":               "HTTP/1.1 400 Bad Request\r\n\r\n",
		"no length":          "$x\r\n",
		"negative length":    "$-2\r\n",
		"length of a planet": "$99999999999999\r\n",
		"length too short":   "$1\r\nabc\r\n",
		"no line end":        strings.Repeat("+", 20<<10),
		"nested for ever":    strings.Repeat("*1\r\n", 100),
		"empty line":         "\r\n",
	} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			f := &fake{answer: func(args []string) []string {
				if args[1] == "odd" {
					return []string{answer}
				}
				return []string{bulk(args[1])}
			}}
			s := over(t, f)
			answered, err := s.Do(t.Context(), wire.NewCommand("odd", "echo", "odd"))
			if name == "two replies" {
				require.NoError(t, err)
				require.Equal(t, int64(1), answered)
			} else {
				require.Error(t, err)
				require.NotErrorIs(t, err, lock.ErrNotApplied)
				require.Equal(t, "answer", failure.ClassOf(err))
			}
			synctest.Wait()
			for range 3 { // after a reply that was not asked for, the first is unknown
				err = ask(t.Context(), t, s, "own", false)
			}
			require.NoError(t, err)
		}))
	}
}

// A reply may come in any pieces.
func TestRepliesInPieces(t *testing.T) {
	t.Parallel()
	reply := "*4\r\n:-7\r\n$-1\r\n$5\r\na\r\nb\r\r\n*1\r\n+OK\r\n"
	want := []any{int64(-7), nil, "a\r\nb\r", []any{"OK"}}
	synctest.Test(t, func(t *testing.T) {
		var pieces []string
		s := over(t, &fake{answer: func([]string) []string { return pieces }})
		for cut := range len(reply) {
			for second := range len(reply) - cut {
				pieces = []string{reply[:cut], reply[cut : cut+second], reply[cut+second:]}
				got, err := s.Do(t.Context(), wire.NewCommand("", "get", "x"))
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		}
	})
}

// After a silence, in which the network has dropped all connections without a word, no call is
// refused, and one is late.
func TestDroppedConnections(t *testing.T) {
	t.Parallel()
	for _, callers := range []int{1, 2, 8, 100} {
		t.Run(strconv.Itoa(callers), virtual.Test(func(t *testing.T) {
			f := &fake{way: always(100 * time.Microsecond)}
			var mu sync.Mutex
			var made []*droppable
			s := dialed(t, func(ctx context.Context) (net.Conn, time.Duration, error) {
				conn, took, err := f.dial(ctx)
				d := &droppable{Conn: conn}
				mu.Lock()
				defer mu.Unlock()
				made = append(made, d)
				return d, took, err
			})
			drop := func() {
				mu.Lock()
				defer mu.Unlock()
				for _, d := range made {
					d.dropped.Store(true)
				}
			}
			sender := newSender()
			var all sync.WaitGroup
			round := func() {
				for i := range callers {
					all.Go(func() {
						for range 12 / min(callers, 12) {
							began := time.Now()
							assert.NoError(t, call(t, s, sender, strconv.Itoa(i), true))
							assert.NoError(t, call(t, s, sender, strconv.Itoa(i), false))
							assert.Less(t, time.Since(began), 100*time.Millisecond)
						}
					})
				}
				all.Wait()
			}
			round()
			time.Sleep(30 * time.Second)
			drop()
			round()
		}))
	}
}

// droppable is a connection that swallows what is written once the network has dropped it.
type droppable struct {
	net.Conn

	dropped atomic.Bool
}

func (d *droppable) Write(b []byte) (int, error) {
	if d.dropped.Load() {
		return len(b), nil
	}
	return d.Conn.Write(b)
}

// Code of the user that dials may fail in any way. Nothing is sent then, and callers come back.
func TestDialersThatFail(t *testing.T) {
	t.Parallel()
	const hang = time.Hour
	for name, dial := range map[string]func(ctx context.Context) error{
		"error":  func(context.Context) error { return errors.New("no way") },
		"panic":  func(context.Context) error { panic("a bug") },
		"exit":   func(context.Context) error { runtime.Goexit(); return nil },
		"hang":   func(context.Context) error { time.Sleep(hang); return nil },
		"budget": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			f, works := new(fake), new(atomic.Bool)
			s := dialed(t, func(ctx context.Context) (net.Conn, time.Duration, error) {
				if !works.Load() {
					if err := dial(ctx); err != nil {
						return nil, 0, err
					}
				}
				return f.dial(ctx)
			})
			for _, size := range []int{1, 100 << 10} {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				c := wire.NewCommand("x", "set", "x", make([]byte, size))
				began := time.Now()
				_, err := s.Do(ctx, c)
				require.ErrorIs(t, err, lock.ErrNotApplied)
				require.LessOrEqual(t, time.Since(began), 310*time.Millisecond)
				cancel()
			}
			works.Store(true)
			time.Sleep(2 * time.Second)
			require.NoError(t, ask(t.Context(), t, s, "later", true))
			require.Equal(t, []string{"later"}, f.arrived())
			s.Close(t.Context())
			time.Sleep(hang)
		}))
	}
}

// A store without a Close keeps no connection, and no goroutine: the bubble ends.
func TestIdleConnectionsEnd(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := new(fake)
		s := wire.New(wire.Config{Dial: f.dial, Timeout: time.Second, Reply: time.Second})
		for range 3 {
			require.NoError(t, ask(t.Context(), t, s, "x", true))
			time.Sleep(50 * time.Second)
		}
		n := len(f.connections())
		time.Sleep(11 * time.Second)
		require.NoError(t, ask(t.Context(), t, s, "x", true))
		require.Greater(t, len(f.connections()), n)
		time.Sleep(2 * time.Minute)
	})
}

// A former master that still answers is left for its successor, by large commands too, however rare they are.
func TestServerThatMoves(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		s, former, present, move := moving(t)
		large := strings.Repeat("x", 20<<10)
		for i := range 3000 {
			if i == 1500 {
				move()
			}
			if i%250 == 0 { // so often that its connection is never idle for long
				moved := len(present.arrived()) > 0
				require.NoError(t, ask(t.Context(), t, s, large, true))
				require.Equal(t, moved, slices.Contains(present.arrived(), large), i)
			}
			require.NoError(t, ask(t.Context(), t, s, "x", true))
			time.Sleep(time.Millisecond)
		}
		require.Contains(t, present.arrived(), large)
		require.Less(t, len(former.arrived()), 2600)
		require.Equal(t, 3012, len(former.arrived())+len(present.arrived()))
		require.LessOrEqual(t, len(present.connections()), 8)
	})
}

// Close waits for the replies that are due, and sends nothing more.
func TestClose(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{way: always(8 * time.Millisecond)}
		s := warm(t, f)
		const window, more = 64, 6
		errs := make([]error, window+more)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() { errs[i] = ask(t.Context(), t, s, strconv.Itoa(i), true) })
			synctest.Wait()
		}
		s.Close(t.Context())
		all.Wait()
		for i, err := range errs {
			if i < window {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, lock.ErrNotApplied)
				require.Equal(t, "closed", failure.ClassOf(err))
			}
		}
		require.Len(t, f.arrived(), window)
	})
}

// A caller comes back soon after its deadline although it writes, for itself and for others with more time.
func TestWriteThatBlocks(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		client, server := net.Pipe() // from which nothing is read
		var made atomic.Bool
		s := closing(t, wire.New(wire.Config{Timeout: time.Minute, Reply: time.Minute, Dial: func(ctx context.Context) (net.Conn, time.Duration, error) {
			if !made.Swap(true) {
				return client, time.Millisecond, nil
			}
			<-ctx.Done()
			return nil, 0, ctx.Err()
		}}))
		defer func() { _ = server.Close() }()
		var all sync.WaitGroup
		for i, budget := range []time.Duration{30 * time.Second, 30 * time.Second, 300 * time.Millisecond, 300 * time.Millisecond} {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), budget)
				defer cancel()
				began := time.Now()
				require.Error(t, ask(ctx, t, s, strconv.Itoa(i), true))
				require.LessOrEqual(t, time.Since(began), budget+110*time.Millisecond)
			})
		}
		all.Wait()
	})
}
