package carry_test

import (
	"context"
	"errors"
	"math/rand/v2"
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

// begun is a Try of a caller with a value, and what makes that caller leave.
func begun(t *testing.T, deaf bool) (try *carry.Try, leave func()) {
	t.Helper()
	parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "value"))
	t.Cleanup(func() { cancel(nil) })
	return &carry.Try{Parent: parent, Deaf: deaf, Until: time.Now().Add(budget), Alarm: new(carry.Alarm)}, func() { cancel(errLeft) }
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
	wait := func(*carry.Try, func()) { time.Sleep(budget) }
	leave := func(_ *carry.Try, leave func()) { leave() }
	end := func(try *carry.Try, _ func()) { try.End() }
	for _, tt := range []struct {
		name     string
		deaf     bool
		happens  func(try *carry.Try, leave func())
		err      error
		unwanted error
		givenUp  bool
	}{
		{"nothing", false, func(*carry.Try, func()) {}, nil, nil, false},
		{"caller leaves", false, leave, nil, context.Canceled, true},
		{"caller leaves a deaf one", true, leave, nil, nil, false},
		{"deadline", false, wait, context.DeadlineExceeded, context.DeadlineExceeded, false},
		{"deadline of a deaf one", true, wait, context.DeadlineExceeded, context.DeadlineExceeded, false},
		{"call returns", false, end, context.Canceled, context.Canceled, false},
		{"call of a deaf one returns", true, end, context.Canceled, context.Canceled, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				try, leave := begun(t, tt.deaf)
				done := try.Done()
				require.False(t, closed(done))
				require.NoError(t, try.Err())
				require.NoError(t, try.Unwanted())
				child, cancel := context.WithCancel(try)
				defer cancel()
				tt.happens(try, leave)
				synctest.Wait()
				require.Equal(t, tt.err != nil, closed(done))
				require.Equal(t, tt.err, try.Err())
				require.Equal(t, tt.err, context.Cause(try))
				require.Equal(t, tt.err, child.Err())
				require.Equal(t, tt.unwanted, try.Unwanted())
				require.Equal(t, tt.givenUp, try.GivenUp() != nil && closed(try.GivenUp()))
				try.End()
				synctest.Wait()
				require.Error(t, child.Err())
			})
			synctest.Test(t, func(t *testing.T) {
				try, leave := begun(t, tt.deaf)
				tt.happens(try, leave)
				require.NoError(t, try.Err(), "nobody has asked when it ends")
				require.Equal(t, tt.unwanted, try.Unwanted())
				done := try.Done()
				synctest.Wait()
				require.Equal(t, tt.err != nil, closed(done), "and now it is found to be over")
				require.Equal(t, tt.err, try.Err())
				try.End()
			})
		})
	}
}

type counter struct{}

func (counter) Depart()     {}
func (counter) Arrive(bool) {}

func TestValuesOfATry(t *testing.T) {
	t.Parallel()
	for name, deaf := range map[string]bool{"hears": false, "deaf": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			try, _ := begun(t, deaf)
			deadline, ok := try.Deadline()
			require.True(t, ok)
			require.Equal(t, try.Until, deadline)
			require.Nil(t, carry.From(try))
			try.Counter = counter{}
			for range 2 { // before and after Done was asked for
				require.Equal(t, counter{}, carry.From(try))
				require.Equal(t, counter{}, carry.From(context.WithoutCancel(try)))
				require.Equal(t, "value", try.Value(valueKey{}))
				try.Done()
			}
			try.End()
		})
	}
}

// One alarm ends many tries, each at its own deadline, in whatever order they
// come, and none that was ended before.
func TestAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var alarm carry.Alarm
		began := time.Now()
		var all sync.WaitGroup
		for _, i := range rand.Perm(100) {
			at := time.Duration(i/2+1) * 10 * time.Millisecond // two at a time
			try := &carry.Try{Parent: t.Context(), Until: began.Add(at), Alarm: &alarm}
			done := try.Done()
			all.Go(func() {
				if i%3 == 0 {
					at /= 2
					time.Sleep(at)
					try.End()
				}
				<-done
				if took := time.Since(began); took != at {
					t.Errorf("%v, not %v", took, at)
				}
			})
		}
		all.Wait()
		late := &carry.Try{Parent: t.Context(), Until: began, Alarm: &alarm}
		<-late.Done()
		require.ErrorIs(t, late.Err(), context.DeadlineExceeded)
		late.End()
		require.ErrorIs(t, late.Err(), context.DeadlineExceeded, "it was over before")
	})
}

func TestTryIsForManyGoroutines(t *testing.T) {
	t.Parallel()
	var alarm carry.Alarm
	var all sync.WaitGroup
	for range 100 {
		try, leave := begun(t, false)
		try.Alarm, try.Until = &alarm, time.Now().Add(rand.N(time.Millisecond))
		for range 4 {
			all.Go(func() {
				done := try.Done()
				if try.Done() != done {
					t.Error("there are two ends")
				}
				_, _ = try.Err(), try.Unwanted()
				<-done
				if try.Err() == nil {
					t.Error("it ended without an error")
				}
			})
		}
		all.Go(leave)
		all.Go(try.End)
	}
	all.Wait()
}
