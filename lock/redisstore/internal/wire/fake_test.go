package wire_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/send"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a server, and the network before it. It answers each command with its second argument.
type fake struct {
	way func() time.Duration // how long a command and its reply travel; nil: no time
	per func() time.Duration // how long the server takes for a command, one after the other; nil: no time

	answer   func(args []string) []string // in pieces; nil: as above
	turns    bool                         // it takes one command of each connection at a time
	hello    int                          // commands of a handshake
	executed atomic.Int64                 // commands

	mu      sync.Mutex
	free    time.Time // when the server has executed what came so far
	came    []string  // second arguments
	conns   []net.Conn
	address string
}

// execute executes a command, and returns when its reply is there.
func (f *fake) execute() (due time.Time) {
	if now := time.Now(); f.free.Before(now) {
		f.free = now
	}
	f.executed.Add(1)
	if f.per != nil {
		f.free = f.free.Add(f.per())
	}
	if due = f.free; f.way != nil {
		due = due.Add(f.way())
	}
	return due
}

// dial makes a connection to f.
func (f *fake) dial(ctx context.Context) (net.Conn, time.Duration, error) {
	var took time.Duration // of a PING, after the handshake
	for range 1 + f.hello {
		f.mu.Lock()
		took = time.Until(f.execute())
		f.mu.Unlock()
		timer := time.NewTimer(took)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, 0, ctx.Err()
		}
	}
	client, server := net.Pipe()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, server)
	go f.serve(server)
	return addressed{client, f.address}, took, nil
}

type addressed struct {
	net.Conn

	address string
}

func (a addressed) RemoteAddr() net.Addr { return address(a.address) }

type address string

func (address) Network() string  { return "fake" }
func (a address) String() string { return string(a) }

func (f *fake) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	type reply struct {
		text []string
		due  time.Time
	}
	replies := make(chan reply, 1<<16)
	defer close(replies)
	go func() {
		for r := range replies {
			if f.turns {
				f.mu.Lock()
				r.due = f.execute()
				f.mu.Unlock()
			}
			time.Sleep(time.Until(r.due))
			for _, piece := range r.text {
				_, _ = io.WriteString(conn, piece)
			}
		}
	}()
	in := bufio.NewReader(conn)
	for {
		args, err := command(in)
		if err != nil {
			return
		}
		f.mu.Lock()
		if len(args) > 1 { // it is no PING
			f.came = append(f.came, args[1])
		}
		var due time.Time
		if !f.turns {
			due = f.execute()
		}
		answer := f.answer
		f.mu.Unlock()
		text := []string{bulk(args[min(1, len(args)-1)])}
		if answer != nil && len(args) > 1 {
			text = answer(args)
		}
		replies <- reply{text, due}
	}
}

func (f *fake) arrived() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.came)
}

func (f *fake) connections() []net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.conns)
}

func bulk(text string) string { return "$" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n" }

// command reads a command.
func command(in *bufio.Reader) (args []string, err error) {
	number := func() (n int) {
		var line string
		if line, err = in.ReadString('\n'); err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(line[1:]))
		}
		return n
	}
	for n := number(); n > 0 && err == nil; n-- {
		text := make([]byte, number()+2)
		if err == nil {
			_, err = io.ReadFull(in, text)
		}
		args = append(args, string(text[:max(len(text)-2, 0)]))
	}
	return args, err
}

// over returns a way to f, which ends with the test.
func over(t *testing.T, f *fake) *wire.Server { t.Helper(); return dialed(t, f.dial) }

// dialed returns a way to a server, which ends with the test.
func dialed(t *testing.T, dial wire.Dialer) *wire.Server {
	t.Helper()
	return closing(t, wire.New(wire.Config{Dial: dial, Timeout: time.Second, Reply: 10 * time.Second}))
}

// peer returns a dialer to a server that speaks as a test says, on each connection.
func peer(speak func(in *bufio.Reader, out io.Writer)) wire.Dialer {
	return func(context.Context) (net.Conn, time.Duration, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			speak(bufio.NewReaderSize(server, 16), server)
		}()
		return client, time.Millisecond, nil
	}
}

// moving returns a way to a server that Sentinels move from former to present when move is called.
func moving(t *testing.T) (s *wire.Server, former, present *fake, move func()) {
	t.Helper()
	former, present = &fake{address: "former"}, &fake{address: "present"}
	var at atomic.Pointer[fake]
	at.Store(former)
	return closing(t, wire.New(wire.Config{
		Moves: true, Timeout: time.Second, Reply: time.Second,
		Dial: func(ctx context.Context) (net.Conn, time.Duration, error) { return at.Load().dial(ctx) },
	})), former, present, func() { at.Store(present) }
}

func closing(t *testing.T, s *wire.Server) *wire.Server {
	t.Helper()
	t.Cleanup(func() {
		s.Close(context.Background())
		time.Sleep(time.Second) // what the network still has
	})
	return s
}

// warm returns a way to f that has its connections.
func warm(t *testing.T, f *fake) *wire.Server {
	t.Helper()
	s := over(t, f)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { assert.NoError(t, ask(t.Context(), t, s, "warm", true)) })
	}
	both.Wait()
	f.mu.Lock()
	f.came = nil
	f.mu.Unlock()
	return s
}

// ask sends a command, and checks that its answer is its own.
func ask(ctx context.Context, t *testing.T, s *wire.Server, name string, yields bool) error {
	t.Helper()
	c := wire.NewCommand(name, "echo", name)
	c.Yields = yields
	answer, err := s.Do(ctx, c)
	c.Free()
	if err == nil {
		assert.Equal(t, name, answer)
	}
	return err
}

// call makes a call as a Locker does.
func call(t *testing.T, s *wire.Server, sender *send.Sender, name string, yields bool) error {
	t.Helper()
	return send.Do(t.Context(), sender, new(send.Call), send.Terms{Budget: 500 * time.Millisecond}, request(func(ctx context.Context) error {
		return ask(ctx, t, s, name, yields)
	}))
}

type request func(ctx context.Context) error

func (r request) Send(ctx context.Context) error { return r(ctx) }

func newSender() *send.Sender {
	return send.New(func(err error) send.Verdict {
		switch {
		case !errors.Is(err, lock.ErrNotApplied):
			return send.Unknown
		case errors.Is(err, lock.ErrDenied):
			return send.Final
		}
		return send.NotApplied
	})
}
