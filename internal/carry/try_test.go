package carry_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/carry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const budget = time.Second

var errLeft = errors.New("has left")

type valueKey struct{}

// over is a Try of a caller with a value, and what makes that caller leave.
func over(t *testing.T, deaf bool) (try *carry.Try, leave func()) {
	t.Helper()
	parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "value"))
	t.Cleanup(func() { cancel(nil) })
	return &carry.Try{Parent: parent, Deaf: deaf, Until: time.Now().Add(budget)}, func() { cancel(errLeft) }
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// What ends a Try, and what it says then, before and after somebody has asked it
// when it ends.
func TestEndsOfATry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		deaf  bool
		end   func(try *carry.Try, leave func())
		err   error // once Done was asked for
		quiet error // if it was not
		cause error
	}{
		{"not at all", false, func(*carry.Try, func()) {}, nil, nil, nil},
		{"caller leaves", false, func(_ *carry.Try, leave func()) { leave() }, context.Canceled, context.Canceled, errLeft},
		{"caller leaves a deaf one", true, func(_ *carry.Try, leave func()) { leave() }, nil, nil, nil},
		{"deadline", false, func(*carry.Try, func()) { time.Sleep(budget) }, context.DeadlineExceeded, nil, context.DeadlineExceeded},
		{"deadline of a deaf one", true, func(*carry.Try, func()) { time.Sleep(budget) }, context.DeadlineExceeded, nil, context.DeadlineExceeded},
		{"call returns", false, func(try *carry.Try, _ func()) { try.End() }, context.Canceled, context.Canceled, context.Canceled},
		{"call of a deaf one returns", true, func(try *carry.Try, _ func()) { try.End() }, context.Canceled, context.Canceled, context.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				try, leave := over(t, tt.deaf)
				done := try.Done()
				require.False(t, closed(done))
				require.NoError(t, try.Err())
				require.NoError(t, context.Cause(try))
				child, cancel := context.WithCancel(try)
				defer cancel()
				tt.end(try, leave)
				synctest.Wait()
				require.Equal(t, tt.err != nil, closed(done))
				require.Equal(t, tt.err, try.Err())
				require.Equal(t, tt.cause, context.Cause(try))
				require.Equal(t, tt.err != nil, closed(child.Done()))
				try.End()
			})
			synctest.Test(t, func(t *testing.T) {
				try, leave := over(t, tt.deaf)
				tt.end(try, leave)
				require.Equal(t, tt.quiet, try.Err(), "nobody has asked for the deadline")
				require.Equal(t, tt.err != nil, closed(try.Done()), "and now it is found to be over")
				require.Equal(t, tt.err, try.Err())
				try.End()
			})
		})
	}
}

func TestDeadlineOfATry(t *testing.T) {
	t.Parallel()
	try, _ := over(t, false)
	deadline, ok := try.Deadline()
	require.True(t, ok)
	require.Equal(t, try.Until, deadline)
}

func TestGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		try, leave := over(t, false)
		time.Sleep(2 * budget)
		require.False(t, closed(try.GivenUp()), "the deadline is not its business")
		leave()
		require.True(t, closed(try.GivenUp()))
		deaf, leave := over(t, true)
		leave()
		require.Nil(t, deaf.GivenUp())
	})
}

type counter struct{}

func (counter) Depart()     {}
func (counter) Arrive(bool) {}

func TestValuesOfATry(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"hears": false, "deaf": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try, _ := over(t, deaf)
			try.Parent = carry.With(try.Parent, nil)
			defer try.End()
			require.Nil(t, carry.From(try))
			try.Counter = counter{}
			for range 2 { // before and after Done was asked for
				require.Equal(t, counter{}, carry.From(try))
				require.Equal(t, counter{}, carry.From(context.WithoutCancel(try)))
				require.Equal(t, "value", try.Value(valueKey{}))
				try.Done()
			}
		})
	}
}

// What is derived from a Try ends with it at once: no goroutine has to see to it.
func TestDerivedFromATry(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"hears": false, "deaf": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try, _ := over(t, deaf)
			ctx, cancel := context.WithCancel(try)
			defer cancel()
			try.End()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			other, cancel := context.WithCancel(try)
			defer cancel()
			require.ErrorIs(t, other.Err(), context.Canceled)
		})
	}
}

// foreign is a context of another make than those of the standard library, which
// learn of its end from a goroutine.
type foreign struct {
	context.Context //nolint:containedctx // it is one

	done chan struct{}
}

func (f *foreign) Done() <-chan struct{} { return f.done }

func (f *foreign) Err() error {
	if closed(f.done) {
		return context.Canceled
	}
	return nil
}

// Who was told by GivenUp that the caller has gone finds an error to return.
func TestErrOfATryThatWasGivenUp(t *testing.T) {
	t.Parallel()
	parent := &foreign{Context: t.Context(), done: make(chan struct{})}
	try := &carry.Try{Parent: parent, Until: time.Now().Add(time.Hour)}
	defer try.End()
	try.Done()
	close(parent.done)
	<-try.GivenUp()
	require.ErrorIs(t, try.Err(), context.Canceled)
}

func TestTryIsForManyGoroutines(t *testing.T) {
	t.Parallel()
	for range 100 {
		try, leave := over(t, false)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				done := try.Done()
				if try.Done() != done {
					t.Error("there are two ends")
				}
				_ = try.Err()
				<-done
			})
		}
		all.Go(leave)
		all.Go(try.End)
		all.Wait()
		require.Error(t, try.Err())
	}
}
