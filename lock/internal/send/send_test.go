package send_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/lock/internal/send"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const budget = 300 * time.Millisecond

var (
	errLost       = errors.New("lost")
	errNotApplied = errors.New("not applied")
	errFinal      = errors.New("final")
)

func newSender() *send.Sender {
	return send.New(func(err error) send.Verdict {
		switch {
		case errors.Is(err, errNotApplied):
			return send.NotApplied
		case errors.Is(err, errFinal):
			return send.Final
		default:
			return send.Unknown
		}
	})
}

// request is a call that does f.
type request func(ctx context.Context) error

func (r request) Send(ctx context.Context) error { return r(ctx) }

// A context that is made from a send needs no goroutine: package context leaves a function with
// the send, and takes it back.
func TestFunctionsAfterATry(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		var called [3]bool
		var stops [3]func() bool
		var child context.Context
		after := func(ctx context.Context, i int) {
			try, ok := ctx.(interface {
				AfterFunc(f func()) (stop func() bool)
			})
			require.True(t, ok)
			stops[i] = try.AfterFunc(func() { called[i] = true })
		}
		var sent context.Context
		require.NoError(t, send.Do(t.Context(), newSender(), new(send.Call), send.Terms{Budget: budget}, request(func(ctx context.Context) error {
			sent = ctx
			after(ctx, 0)
			after(ctx, 1)
			ctx, cancel := context.WithCancel(ctx)
			t.Cleanup(cancel)
			child = ctx
			require.True(t, stops[0]())
			require.False(t, stops[0]())
			return nil
		})))
		after(sent, 2)
		synctest.Wait()
		require.Equal(t, [3]bool{false, true, true}, called)
		require.False(t, stops[1]())
		require.False(t, stops[2]())
		require.Error(t, child.Err())
	})
}

// A send that is left in flight is counted until its end is reported, which may be at any time. The
// report decides whether the call is in doubt.
func TestFlight(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		how  []send.Landing
		want send.Doubt
	}{
		{"nothing", []send.Landing{send.Nothing}, send.Doubt{}},
		{"answered", []send.Landing{send.Answered}, send.Doubt{Answered: 1}},
		{"lost", []send.Landing{send.Unanswered}, send.Doubt{Unanswered: 1}},
		{"all", []send.Landing{send.Unanswered, send.Nothing, send.Answered, send.Unanswered}, send.Doubt{Unanswered: 2, Answered: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := newSender(), new(send.Call)
			var flight *send.Flight
			err := send.Do(t.Context(), s, c, send.Terms{Budget: budget, Single: true}, request(func(ctx context.Context) error {
				derived, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
				defer cancel()
				for range tt.how {
					flight = send.Depart(derived)
				}
				return errLost
			}))
			require.ErrorIs(t, err, errLost)
			require.True(t, c.Unanswered)
			require.Same(t, flight, c.Flight)
			require.Equal(t, len(tt.how), flight.Doubt().InFlight)
			require.Equal(t, len(tt.how), s.Sends.Count())
			landed := 0 // a call for several keys has a waiter for each of them
			flight.WhenLanded(func() { landed++ })
			flight.WhenLanded(func() { landed++ })
			var all sync.WaitGroup
			for _, how := range tt.how[1:] {
				all.Go(func() { flight.Arrive(how) })
			}
			all.Wait()
			require.Zero(t, landed)
			flight.Arrive(tt.how[0])
			require.Equal(t, 2, landed)
			flight.WhenLanded(func() { landed++ })
			require.Equal(t, 3, landed, "it has landed before")
			require.Zero(t, s.Sends.Count())
			got := flight.Doubt()
			got.Last = time.Time{}
			require.Equal(t, tt.want, got)
		})
	}
	require.Nil(t, send.Depart(t.Context()))
	(*send.Flight)(nil).Arrive(send.Unanswered)
	require.Zero(t, (*send.Flight)(nil).Doubt())
}

// A token that was taken to give a send up is given back if there is no other one:
// since it was answered after all, or can be of no use.
func TestTokenOfASendThatIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"answered": nil, "final": errFinal, "its caller has gone": errLost} {
		t.Run(name, virtual.Test(func(t *testing.T) {
			s := newSender()
			for s.Retries.Tokens() > 10 {
				require.True(t, s.Retries.Take())
			}
			ctx, leave := context.WithCancel(t.Context())
			before := s.Retries.Tokens()
			sends := 0
			_ = send.Do(ctx, s, new(send.Call), send.Terms{Budget: budget}, request(func(ctx context.Context) error {
				sends++
				require.True(t, ctx.(*send.Try).GiveUp(budget/3, false))
				leave()
				return err
			}))
			require.Equal(t, 1, sends)
			require.Equal(t, before, s.Retries.Tokens())
		}))
	}
}

// A send without an answer is given up for another after a third of the budget, if there is a token. Without
// one it has the whole budget.
func TestASilentSendIsGivenUpForAnother(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		terms  send.Terms
		before time.Duration // the caller's own deadline; 0: none
		until  time.Duration
		sends  int
		left   int // tokens
		text   string
	}{
		{"silent", send.Terms{Budget: budget}, 0, budget / 3, 2, 0, ""},
		{"one send only", send.Terms{Budget: budget, Single: true}, 0, budget, 1, 1, "no answer within 300ms"},
		{"no time for another", send.Terms{Budget: budget}, budget/3 + budget/20, budget/3 + budget/20, 1, 1, "no answer within 115ms"},
	} {
		t.Run(tt.name, virtual.Test(func(t *testing.T) {
			s, began, sends := newSender(), time.Now(), 0
			for s.Retries.Tokens() > 1 {
				s.Retries.Take()
			}
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tt.before, time.Hour))
			defer cancel()
			err := send.Do(ctx, s, new(send.Call), tt.terms, request(func(ctx context.Context) error {
				if sends++; sends > 1 {
					return nil
				}
				<-ctx.Done()
				require.Equal(t, tt.until, time.Since(began))
				return errLost
			}))
			if require.Equal(t, tt.sends, sends); tt.text == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.text)
			}
			require.Equal(t, tt.left, s.Retries.Tokens()-int(10*time.Since(began)/time.Second))
		}))
	}
}

// A send that fails is repeated after a pause, and its failure is the cause.
func TestFailureBeforeASilence(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		began, sends := time.Now(), 0
		err := send.Do(t.Context(), newSender(), new(send.Call), send.Terms{Budget: budget}, request(func(ctx context.Context) error {
			if sends++; sends == 1 {
				return errLost
			}
			require.GreaterOrEqual(t, time.Since(began), 2*time.Millisecond)
			<-ctx.Done()
			return errNotApplied
		}))
		require.ErrorIs(t, err, errLost)
	})
}

// A send that is given up so late that its end leaves no time for another is not said
// to have had the whole budget.
func TestTrueTimeOfASilence(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		err := send.Do(t.Context(), newSender(), new(send.Call), send.Terms{Budget: budget}, request(func(ctx context.Context) error {
			time.Sleep(budget * 94 / 100)
			require.True(t, ctx.(*send.Try).GiveUp(budget/3, false))
			time.Sleep(budget * 2 / 100)
			return errLost
		}))
		require.EqualError(t, err, "no answer within 288ms")
	})
}

// When the last activity leaves, all waiters are notified, also those that begin to wait at that moment.
func TestCounterWaits(t *testing.T) {
	t.Parallel()
	var c send.Counter
	for range 2000 {
		var all sync.WaitGroup
		require.True(t, c.Enter())
		for range 2 {
			all.Go(func() { c.Enter(); c.Leave() })
			all.Go(func() {
				assert.Zero(t, c.Wait(context.Background()))
			})
		}
		c.Leave()
		all.Wait()
	}
	require.Zero(t, c.Count())
}

// A send has the whole budget if its store does not ask for its end.
func TestSendThatDoesNotAskForItsEnd(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		began := time.Now()
		require.Error(t, send.Do(t.Context(), newSender(), new(send.Call), send.Terms{Budget: budget}, request(func(ctx context.Context) error {
			for ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			require.Equal(t, budget, time.Since(began))
			require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
			return ctx.Err()
		})))
	})
}
