package lock_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type op string

const (
	claim   op = "claim"
	renew   op = "renew"
	settle  op = "settle"
	release op = "release"
	get     op = "get"
)

// fault decides what becomes of one call: apply does it.
type fault func(ctx context.Context, apply func() error) error

// scripted is a store behind a network: calls run on the Locker's goroutines,
// and the next ones of an operation meet the faults that are lined up for it.
type scripted struct {
	store lock.Store
	lag   time.Duration

	mu     sync.Mutex
	faults map[op][]fault
	always map[op]fault
	calls  map[op]int
}

func newScripted() *scripted {
	return &scripted{
		store:  memstore.New(),
		lag:    5 * time.Second,
		faults: make(map[op][]fault),
		always: make(map[op]fault),
		calls:  make(map[op]int),
	}
}

func (s *scripted) next(o op, faults ...fault) *scripted {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults[o] = append(s.faults[o], faults...)
	return s
}

// every sets what all calls of o meet; nil ends it.
func (s *scripted) every(f fault, ops ...op) *scripted {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range ops {
		s.always[o] = f
	}
	return s
}

func (s *scripted) count(o op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[o]
}

func (s *scripted) play(ctx context.Context, o op, apply func() error) error {
	s.mu.Lock()
	s.calls[o]++
	f := s.always[o]
	if queue := s.faults[o]; len(queue) > 0 {
		f, s.faults[o] = queue[0], queue[1:]
	}
	s.mu.Unlock()
	if f == nil {
		return apply()
	}
	return f(ctx, apply)
}

// What a network does.
var (
	errEOF = io.EOF

	loseReply   fault = func(_ context.Context, apply func() error) error { _ = apply(); return errEOF }
	loseRequest fault = func(context.Context, func() error) error { return errEOF }
	refuse      fault = func(context.Context, func() error) error {
		return errors.Join(lock.ErrNotApplied, errors.New("READONLY"))
	}
	hangReply fault = func(ctx context.Context, apply func() error) error {
		_ = apply()
		<-ctx.Done()
		return ctx.Err()
	}
	hangRequest fault = func(ctx context.Context, _ func() error) error { <-ctx.Done(); return ctx.Err() }
)

// slow answers after d.
func slow(d time.Duration) fault {
	return func(ctx context.Context, apply func() error) error {
		err := apply()
		sleep(ctx, d)
		return err
	}
}

// late returns when its caller gives up, and applies the call d after it came.
func late(d time.Duration) fault {
	return func(ctx context.Context, apply func() error) error {
		time.AfterFunc(d, func() { _ = apply() })
		<-ctx.Done()
		return ctx.Err()
	}
}

// stuck does not even return when its caller gives up: the client library's
// own time-out is longer. It applies the call after d.
func stuck(d time.Duration) fault {
	return func(_ context.Context, apply func() error) error {
		time.Sleep(d)
		_ = apply()
		return errEOF
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (s *scripted) Describe() lock.Description { return lock.Description{MaxLag: max(s.lag, 1)} }

// direct is a scripted store as it is: its calls are made on the Locker's goroutines,
// and return when their contexts end, except for stuck ones. Those of apart are made on
// goroutines of their own, and are left behind at the end.
func direct(s *scripted) lock.Store { return s }
func apart(s *scripted) lock.Store  { return lock.EndWithContext(s) }

func (s *scripted) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	var answer atomic.Pointer[lock.Entry] // which can come after the call has returned
	err := s.play(ctx, claim, func() error {
		e, err := s.store.Claim(context.WithoutCancel(ctx), key, c)
		answer.Store(&e)
		return err
	})
	if e := answer.Load(); e != nil {
		return *e, err
	}
	return lock.Entry{}, err
}

func (s *scripted) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return s.yes(ctx, renew, func(ctx context.Context) (bool, error) { return s.store.Renew(ctx, key, c) })
}

func (s *scripted) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (bool, error) {
	return s.yes(ctx, settle, func(ctx context.Context) (bool, error) { return s.store.Settle(ctx, key, token, receipt, keep) })
}

func (s *scripted) Release(ctx context.Context, key, token string) (bool, error) {
	return s.yes(ctx, release, func(ctx context.Context) (bool, error) { return s.store.Release(ctx, key, token) })
}

func (s *scripted) Get(ctx context.Context, key string) (lock.Entry, error) {
	var e lock.Entry
	err := s.play(ctx, get, func() (err error) { e, err = s.store.Get(ctx, key); return err })
	return e, err
}

func (s *scripted) yes(ctx context.Context, o op, call func(context.Context) (bool, error)) (bool, error) {
	var ok bool
	err := s.play(ctx, o, func() (err error) { ok, err = call(context.WithoutCancel(ctx)); return err })
	return ok, err
}

// state is what the server really holds.
func (s *scripted) state(t *testing.T, key string) lock.Entry {
	t.Helper()
	e, err := s.store.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	return e
}

// free removes whatever is under key, as an operator does.
func (s *scripted) forget(t *testing.T, key string) {
	t.Helper()
	e := s.state(t, key)
	if ok, err := s.store.(lock.Inspector).Forget(t.Context(), key, e.Token); err != nil || !ok {
		t.Fatalf("Forget: %v, %v", ok, err)
	}
}

// events collects what Lockers report.
type events struct {
	mu   sync.Mutex
	seen []lock.Event
}

func (v *events) observe(_ context.Context, e lock.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen = append(v.seen, e)
}

func (v *events) count(kind lock.EventKind) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, e := range v.seen {
		if e.Kind == kind {
			n++
		}
	}
	return n
}
