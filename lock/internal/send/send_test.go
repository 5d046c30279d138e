package send_test

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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

// A send is a context that ends with the send, with the budget, or at a third of it if
// there is another send or the caller has gone. It says so whether or not its end was
// asked for before, and in the contexts made from it.
func TestEndsOfATry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		terms  send.Terms
		leaves bool // the caller, at once
		asks   bool // the store, for Done
		ends   time.Duration
	}{
		{"a third", send.Terms{Budget: budget}, false, true, budget / 3},
		{"the budget, since the store does not ask", send.Terms{Budget: budget}, false, false, budget},
		{"the budget, of one send only", send.Terms{Budget: budget, Once: true}, false, true, budget},
		{"a third, of a caller that has gone", send.Terms{Budget: budget}, true, true, budget / 3},
		{"a third, of a call that goes on without its caller", send.Terms{Budget: budget, Lasting: true}, true, true, budget / 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				if tt.leaves {
					leave()
				}
				s, began, sends := newSender(), time.Now(), 0
				var tries []context.Context
				err := send.Do(ctx, s, new(send.Call), tt.terms, request(func(ctx context.Context) error {
					require.NoError(t, ctx.Err())
					if sends++; sends > 1 {
						return errFinal
					}
					if tt.asks {
						child, cancel := context.WithCancel(ctx)
						t.Cleanup(cancel)
						tries = append(tries, ctx, child)
						<-ctx.Done()
					} else {
						tries = append(tries, ctx)
						for ctx.Err() == nil {
							time.Sleep(time.Millisecond)
						}
					}
					require.Equal(t, tt.ends, time.Since(began))
					require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
					return ctx.Err()
				}))
				require.Error(t, err)
				synctest.Wait()
				for _, ctx := range tries {
					<-ctx.Done()
					require.Error(t, ctx.Err())
				}
			})
		})
	}
}

// A context that is made from a send needs no goroutine: package context leaves a function with
// the send, and takes it back.
func TestFunctionsAfterATry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		{"lost", []send.Landing{send.Lost}, send.Doubt{Lost: 1}},
		{"all", []send.Landing{send.Lost, send.Nothing, send.Answered, send.Lost}, send.Doubt{Lost: 2, Answered: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, c := newSender(), new(send.Call)
			var flight *send.Flight
			err := send.Do(t.Context(), s, c, send.Terms{Budget: budget, Once: true}, request(func(ctx context.Context) error {
				derived, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
				defer cancel()
				flight = send.InFlight(derived)
				require.Same(t, flight, send.InFlight(ctx))
				for range tt.how {
					flight.Depart()
				}
				return errLost
			}))
			require.ErrorIs(t, err, errLost)
			require.True(t, c.Unanswered())
			require.Same(t, flight, c.Flight())
			require.Equal(t, len(tt.how), flight.Doubt().InFlight)
			require.Equal(t, len(tt.how), s.Sends.Count())
			landed := 0
			flight.WhenLanded(func() { landed++ })
			var all sync.WaitGroup
			for _, how := range tt.how {
				all.Go(func() { flight.Arrive(how) })
			}
			all.Wait()
			require.Equal(t, 1, landed)
			require.Zero(t, s.Sends.Count())
			got := flight.Doubt()
			got.Last = time.Time{}
			require.Equal(t, tt.want, got)
		})
	}
	require.Nil(t, send.InFlight(t.Context()))
	(*send.Flight)(nil).Depart()
	(*send.Flight)(nil).Arrive(send.Lost)
	require.Zero(t, (*send.Flight)(nil).Doubt())
}

// A send that returned without an answer, and left nothing in flight, is lost.
func TestDoubtOfACall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		errs []error
		lost int
	}{
		{"answered", []error{nil}, 0},
		{"not applied", []error{errNotApplied, nil}, 0},
		{"final", []error{errFinal}, 0},
		{"lost, then answered", []error{errLost, nil}, 1},
		{"lost twice, then final", []error{errLost, errLost, errFinal}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, errs := new(send.Call), tt.errs
			err := send.Do(t.Context(), newSender(), c, send.Terms{Budget: time.Minute}, request(func(context.Context) error {
				err := errs[0]
				errs = errs[1:]
				return err
			}))
			require.Equal(t, tt.errs[len(tt.errs)-1], err)
			require.Equal(t, tt.lost > 0, c.Unanswered())
			require.Equal(t, tt.lost, c.Flight().Doubt().Lost)
		})
	}
}

// A store that fails at once is sent a call eight times, however much time is left.
func TestSendsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sends := 0
		err := send.Do(t.Context(), newSender(), new(send.Call), send.Terms{Budget: time.Hour}, request(func(context.Context) error {
			sends++
			return errNotApplied
		}))
		require.ErrorIs(t, err, errNotApplied)
		require.Equal(t, 8, sends)
	})
}

// A token that was taken to give a send up is given back if there is no other one:
// since it was answered after all, or can be of no use.
func TestTokenOfASendThatIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"answered": nil, "final": errFinal, "its caller has gone": errLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSender()
				for s.Retries.Tokens() > 10 {
					require.True(t, s.Retries.Take())
				}
				ctx, leave := context.WithCancel(t.Context())
				before := s.Retries.Tokens()
				sends := 0
				_ = send.Do(ctx, s, new(send.Call), send.Terms{Budget: budget}, request(func(ctx context.Context) error {
					sends++
					require.True(t, ctx.(*send.Try).GiveUp(budget/3))
					leave()
					return err
				}))
				require.Equal(t, 1, sends)
				require.Equal(t, before, s.Retries.Tokens())
			})
		})
	}
}

// no-collapse: tokens that are given back to a bucket that answers have filled meanwhile do not
// overfill it.
func TestTokensThatAreGivenBackDoNotOverfill(t *testing.T) {
	t.Parallel()
	s := newSender()
	for range 2000 {
		s.Retries.Give()
	}
	require.Equal(t, 1000, s.Retries.Tokens())
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
		{"one send only", send.Terms{Budget: budget, Once: true}, 0, budget, 1, 1, "no answer within 300ms"},
		{"no time for another", send.Terms{Budget: budget}, budget/3 + budget/20, budget/3 + budget/20, 1, 1, "no answer within 115ms"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
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
			})
		})
	}
}

// A send that fails is repeated after a pause, and its failure is the cause.
func TestFailureBeforeASilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		err := send.Do(t.Context(), newSender(), new(send.Call), send.Terms{Budget: budget}, request(func(ctx context.Context) error {
			time.Sleep(budget * 94 / 100)
			require.True(t, ctx.(*send.Try).GiveUp(budget/3))
			time.Sleep(budget * 2 / 100)
			return errLost
		}))
		require.EqualError(t, err, "no answer within 288ms")
	})
}

// A caller that leaves after a third of the budget, in which there was no token for
// another send, is let go within another third.
func TestCallerThatLeavesWithoutTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const brief = 3 * time.Millisecond // a token takes 100
		s := newSender()
		for s.Retries.Take() {
		}
		ctx, leave := context.WithCancel(t.Context())
		began := time.Now()
		time.AfterFunc(brief/2, leave)
		err := send.Do(ctx, s, new(send.Call), send.Terms{Budget: brief}, request(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, brief/3*2, time.Since(began))
	})
}

// Each that waits for the landing of a call is called when nothing is in flight: a call for several
// keys has one for each of them.
func TestAllThatWaitForALandingAreCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var flight *send.Flight
		err := send.Do(t.Context(), newSender(), new(send.Call), send.Terms{Budget: budget, Once: true}, request(func(ctx context.Context) error {
			flight = send.InFlight(ctx)
			flight.Depart()
			flight.Depart()
			return errLost
		}))
		require.Error(t, err)
		called := make([]int, 3)
		for i := range called {
			flight.WhenLanded(func() { called[i]++ })
		}
		flight.Arrive(send.Lost)
		require.Equal(t, []int{0, 0, 0}, called)
		flight.Arrive(send.Answered)
		require.Equal(t, []int{1, 1, 1}, called)
		flight.WhenLanded(func() { called[0]++ })
		require.Equal(t, 2, called[0], "it has landed before")
	})
}
