package wire_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// No command is written to a server that has too many clients, says so, and closes the connection.
func TestServerThatTurnsAway(t *testing.T) {
	t.Parallel()
	for reply, away := range map[string]bool{
		"-DENIED Redis is running in protected mode because protected mode is enabled\r\n": true,
		"-LOADING Redis is loading the dataset in memory\r\n":                              false,
		"+PONG\r\n$1\r\n":                 true, // the rest would be read as a reply
		"-ERR unknown command 'ping'\r\n": false,
		"-NOPERM this user has no permissions to run the 'ping' command\r\n": false,
	} {
		t.Run(reply[1:8], virtual.Test(func(t *testing.T) {
			connect := peer(func(in *bufio.Reader, out io.Writer) {
				_, _ = command(in)
				_, _ = io.WriteString(out, reply)
				if !away {
					_, _ = command(in)
					_, _ = io.WriteString(out, bulk("x"))
				}
			})
			s := dialed(t, wire.DialerOf(func(ctx context.Context) (net.Conn, error) {
				nc, _, err := connect(ctx)
				return nc, err
			}, func(context.Context) (wire.Login, error) { return wire.Login{}, nil }))
			err := ask(t.Context(), t, s, "x", true)
			if away {
				require.ErrorIs(t, err, lock.ErrNotApplied)
			} else {
				require.NoError(t, err)
			}
		}))
	}
}

// A server, or a proxy, that refuses a command before it has read it, and reads no further, keeps
// neither its caller nor the next ones.
func TestReplyToWhatIsNotRead(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 1 << 10, "large": 100 << 10} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			var refuse atomic.Bool
			s := dialed(t, peer(func(in *bufio.Reader, out io.Writer) {
				for !refuse.Load() {
					if _, err := in.Peek(1); err != nil {
						return
					}
					if refuse.Load() {
						break
					}
					if _, err := command(in); err != nil {
						return
					}
					_, _ = io.WriteString(out, "+OK\r\n")
				}
				refuse.Store(false)
				_, _ = io.WriteString(out, "-ERR Protocol error: invalid bulk length\r\n")
				time.Sleep(time.Minute)
			}))
			set := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				c := wire.NewCommand("x", "set", "x", make([]byte, size))
				_, err := s.Do(ctx, c)
				return err
			}
			require.NoError(t, set())
			time.Sleep(100 * time.Millisecond) // the connection is idle: its end is awaited
			refuse.Store(true)
			began := time.Now()
			require.ErrorContains(t, set(), "invalid bulk length")
			assert.LessOrEqual(t, time.Since(began), 310*time.Millisecond)
			require.NoError(t, set())
			time.Sleep(time.Minute)
		}))
	}
}

// slow is a connection whose Close takes as long as over TLS to a peer that reads nothing.
type slow struct{ net.Conn }

func (s slow) Close() error {
	time.Sleep(5 * time.Second)
	return s.Conn.Close()
}

// A caller that reads for itself comes back when its connection is given up, not when its end is over.
func TestConnectionThatTakesTimeToClose(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{way: always(time.Second)}
		s := wire.New(wire.Config{Timeout: 2 * time.Second, Reply: time.Minute, Dial: func(ctx context.Context) (net.Conn, time.Duration, error) {
			nc, took, err := f.dial(ctx)
			return slow{nc}, took, err
		}})
		require.NoError(t, ask(t.Context(), t, s, "x", true))
		f.way = always(time.Minute)
		ended := make(chan time.Time, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			err := ask(ctx, t, s, "y", false)
			assert.NotErrorIs(t, err, lock.ErrNotApplied)
			assert.Error(t, err)
			ended <- time.Now()
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		s.Close(ctx)
		require.LessOrEqual(t, (<-ended).Sub(began), 510*time.Millisecond)
		time.Sleep(2 * time.Minute)
	})
}

// Whatever the code does that finds the credentials, its connection is closed.
func TestCredentialsThatFail(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func(){
		"panic": func() { panic("a bug") },
		"hang":  func() { time.Sleep(time.Hour) },
	} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			var opened, ended atomic.Int64
			s := closing(t, wire.New(wire.Config{Timeout: time.Second, Reply: time.Second, Dial: wire.DialerOf(func(context.Context) (net.Conn, error) {
				client, server := net.Pipe()
				opened.Add(1)
				go func() {
					_, _ = io.Copy(io.Discard, server)
					ended.Add(1)
				}()
				return client, nil
			}, func(context.Context) (wire.Login, error) { find(); return wire.Login{}, nil })}))
			for range 10 {
				require.ErrorIs(t, ask(t.Context(), t, s, "x", true), lock.ErrNotApplied)
			}
			time.Sleep(2 * time.Second)
			assert.Equal(t, opened.Load(), ended.Load())
			assert.Positive(t, ended.Load())
			s.Close(t.Context())
			time.Sleep(2 * time.Hour)
		}))
	}
}

// A proxy whose server has gone answers PING, and nothing else. Callers use up the connections then. Soon
// after the server is back, they are served over others.
func TestConnectionsThatAllStall(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		var works atomic.Bool
		f := &fake{answer: func(args []string) []string {
			if !works.Load() {
				return nil
			}
			return []string{bulk(args[1])}
		}}
		s := over(t, f)
		sender := newSender()
		var all sync.WaitGroup
		var served atomic.Int64
		began := time.Now()
		for range 64 {
			all.Go(func() {
				for time.Since(began) < 3*time.Second {
					if call(t, s, sender, "x", true) == nil {
						served.Add(1)
					}
					time.Sleep(5 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		require.Zero(t, served.Load())
		works.Store(true)
		time.Sleep(time.Second)
		assert.Positive(t, served.Load())
		all.Wait()
		assert.Less(t, len(f.connections()), 60)
		time.Sleep(time.Minute)
	})
}

// nameless is a connection of a dialer that knows no addresses.
type nameless struct{ net.Conn }

func (nameless) RemoteAddr() net.Addr { return nil }

// A server that is looked for again, by a dialer without addresses, counts as the same.
func TestDialerWithoutAddresses(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{way: always(time.Millisecond)}
		s := closing(t, wire.New(wire.Config{
			Timeout: time.Second, Reply: time.Second, Moves: true,
			Dial: func(ctx context.Context) (net.Conn, time.Duration, error) {
				nc, took, err := f.dial(ctx)
				return nameless{nc}, took, err
			},
		}))
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			require.NoError(t, ask(t.Context(), t, s, "x", true))
		}
		require.GreaterOrEqual(t, len(f.connections()), 3, "it was not looked for")
	})
}

// sshChannel is a connection without deadlines, such as a channel of golang.org/x/crypto/ssh.
type sshChannel struct{ net.Conn }

func (sshChannel) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (sshChannel) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (sshChannel) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// A call ends with its context, also over a connection whose reads nothing ends.
func TestConnectionWithoutDeadlines(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{answer: func([]string) []string { return nil }}
		s := dialed(t, func(ctx context.Context) (net.Conn, time.Duration, error) {
			nc, took, err := f.dial(ctx)
			return sshChannel{nc}, took, err
		})
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			began := time.Now()
			require.Error(t, ask(ctx, t, s, "k", true))
			require.LessOrEqual(t, time.Since(began), 210*time.Millisecond)
		}
	})
}

// A former master that still owes a reply is no way for later commands: they end when no other server is found.
func TestDialFailsBesideARetiredConnection(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		var made atomic.Bool
		demoted := make(chan struct{})
		connect := peer(func(in *bufio.Reader, out io.Writer) {
			_, _ = command(in)
			<-demoted
			_, _ = command(in)
			_, _ = io.WriteString(out, "-READONLY You can't write against a read only replica.\r\n")
			_, _ = command(in) // no reply to the second
		})
		s := closing(t, wire.New(wire.Config{Timeout: time.Second, Reply: time.Minute, Dial: func(ctx context.Context) (net.Conn, time.Duration, error) {
			if made.Swap(true) {
				return nil, 0, io.ErrUnexpectedEOF
			}
			return connect(ctx)
		}}))
		var all sync.WaitGroup
		for _, name := range []string{"first", "second"} {
			all.Go(func() { assert.Error(t, ask(t.Context(), t, s, name, true)) })
			synctest.Wait()
		}
		close(demoted)
		synctest.Wait()
		began := time.Now()
		require.ErrorIs(t, ask(t.Context(), t, s, "third", true), lock.ErrNotApplied)
		require.Zero(t, time.Since(began), "it waited for the replies of a former master")
		all.Wait()
	})
}

// A dial that fails costs no command while another connection serves.
func TestDialFailsBesideAConnection(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		f := &fake{way: always(10 * time.Millisecond)}
		var dials atomic.Int64
		s := dialed(t, func(ctx context.Context) (net.Conn, time.Duration, error) {
			if dials.Add(1) > 1 {
				time.Sleep(time.Millisecond)
				return nil, 0, errors.New("refused")
			}
			return f.dial(ctx)
		})
		assert.NoError(t, ask(t.Context(), t, s, "first", false))
		var all sync.WaitGroup
		for i := range 3000 {
			all.Go(func() { assert.NoError(t, ask(t.Context(), t, s, strconv.Itoa(i), i%2 == 0)) })
		}
		all.Wait()
		require.Greater(t, dials.Load(), int64(1))
	})
}

// Dials that hang during a silence leave room for one that begins soon after it, and has the time that it takes.
func TestDialsThatHang(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	for _, silence := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 20 * time.Second} {
		for _, takes := range []time.Duration{time.Millisecond, 900 * time.Millisecond} {
			t.Run(silence.String()+" and "+takes.String(), virtual.Test(func(t *testing.T) {
				f, began := &fake{way: always(time.Millisecond)}, time.Now()
				var hanging, most atomic.Int32
				s := closing(t, wire.New(wire.Config{
					Timeout: timeout, Reply: time.Second,
					Dial: func(ctx context.Context) (net.Conn, time.Duration, error) {
						if time.Since(began) < silence {
							most.Store(max(most.Load(), hanging.Add(1)))
							<-ctx.Done()
							hanging.Add(-1)
						} else if time.Sleep(takes); ctx.Err() == nil {
							return f.dial(ctx)
						}
						return nil, 0, ctx.Err()
					},
				}))
				for served := false; !served; time.Sleep(time.Millisecond) {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					served = ask(ctx, t, s, "x", true) == nil
					cancel()
				}
				require.LessOrEqual(t, time.Since(began)-silence, takes+120*time.Millisecond+min(silence, timeout)/8)
				require.LessOrEqual(t, most.Load(), int32(24))
			}))
		}
	}
}
