package lock_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// answered has the results of Once, and the events that it has reported.
type answered struct {
	receipt  string
	replayed bool
	err      string
	events   []lock.Event
}

// asked asks l for the record of key.
func asked(ctx context.Context, l *lock.Locker, key, fingerprint string) (a answered) {
	var observed events
	receipt, replayed, err := l.With(lock.WithObserver(observed.observe)).Once(ctx, key, []byte(fingerprint),
		func(context.Context) ([]byte, error) { return nil, errors.New("it ran") })
	a.receipt, a.replayed = string(receipt), replayed
	if err != nil {
		a.err = err.Error()
	}
	for _, e := range observed.seen {
		e.Err = nil // a.err has the text of the error
		a.events = append(a.events, e)
	}
	return a
}

// The embedded store is asked for a receipt before there is a run. The results and
// events must be the same as over a store for which Once begins a run: the same
// store behind a wrapper without Describe.
func TestAReceiptIsFoundAsByARun(t *testing.T) {
	const work, fingerprint = "order=7", "request"
	cases := map[string]struct {
		opts        []lock.Option
		before      func(ctx context.Context, l *lock.Locker) context.Context // with its receipt there, for a minute
		fingerprint string
		want        string // the receipt; "": none is returned
		ran         bool
	}{
		"it is there":               {fingerprint: fingerprint, want: "receipt"},
		"asked without fingerprint": {want: "receipt"},
		"by one who would wait":     {opts: []lock.Option{lock.WithWait(time.Second)}, fingerprint: fingerprint, want: "receipt"},
		"by one who says who he is": {opts: []lock.Option{lock.WithOrigin(func(context.Context) string { return "trace" })}, fingerprint: fingerprint, want: "receipt"},
		"another request":           {fingerprint: "another"},
		"its keep is over": {fingerprint: fingerprint, ran: true, before: func(ctx context.Context, _ *lock.Locker) context.Context {
			time.Sleep(time.Minute)
			return ctx
		}},
		"the caller has left": {fingerprint: fingerprint, before: func(ctx context.Context, _ *lock.Locker) context.Context {
			ctx, leave := context.WithCancelCause(ctx)
			leave(errors.New("left"))
			return ctx
		}},
		"the Locker is closed": {fingerprint: fingerprint, before: func(ctx context.Context, l *lock.Locker) context.Context {
			_ = l.Close(ctx)
			return ctx
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var said [2]answered
			for i, as := range []func(lock.Store) lock.Store{
				func(s lock.Store) lock.Store { return s },
				func(s lock.Store) lock.Store { return struct{ lock.Store }{s} },
			} {
				synctest.Test(t, func(t *testing.T) {
					l := lock.New(as(memstore.New()), append(c.opts, lock.WithKeep(time.Minute))...)
					_, _, err := l.Once(t.Context(), work, []byte(fingerprint), func(context.Context) ([]byte, error) { return []byte("receipt"), nil })
					require.NoError(t, err)
					ctx := t.Context()
					if c.before != nil {
						ctx = c.before(ctx, l)
					}
					said[i] = asked(ctx, l, work, c.fingerprint)
					require.NoError(t, l.Close(t.Context()))
				})
			}
			require.Equal(t, c.want, said[0].receipt)
			require.Equal(t, c.want != "", said[0].replayed)
			require.Equal(t, c.ran, said[0].err == "it ran")
			require.Equal(t, said[1], said[0])
		})
	}
}

// A store that is asked only for receipts that it has still forgets receipts
// whose keep is over.
func TestReplaysAgeTheStore(t *testing.T) {
	const n = 1000
	synctest.Test(t, func(t *testing.T) {
		l := lock.New(memstore.New(), lock.WithKeep(time.Minute))
		kept := l.With(lock.WithKeep(time.Hour))
		answer := func(context.Context) ([]byte, error) { return []byte("receipt"), nil }
		for i := range n {
			_, _, err := l.Once(t.Context(), "short="+strconv.Itoa(i), nil, answer)
			require.NoError(t, err)
			_, _, err = kept.Once(t.Context(), "long="+strconv.Itoa(i), nil, answer)
			require.NoError(t, err)
		}
		require.Equal(t, 2*n, l.Stats().Entries)
		time.Sleep(2 * time.Minute)
		for i := range n {
			_, replayed, err := kept.Once(t.Context(), "long="+strconv.Itoa(i), nil, answer)
			require.NoError(t, err)
			require.True(t, replayed)
		}
		require.Equal(t, n, l.Stats().Entries)
		require.NoError(t, l.Close(t.Context()))
	})
}
