package lock_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/early"
	"github.com/httplatch/httplatch/lock"
)

// record is the store key of the receipt of key.
var record = func() string {
	sum := sha256.Sum256([]byte(key))
	return "once:" + hex.EncodeToString(sum[:])
}()

const keep = time.Hour

var (
	print1 = []byte("request 1")
	print2 = []byte("request 2")
)

// effect is the work of these tests: it counts its runs.
type effect struct{ runs atomic.Int64 }

func (f *effect) run(answer string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		f.runs.Add(1)
		return []byte(answer), nil
	}
}

func (f *effect) fail(err error) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		f.runs.Add(1)
		return nil, err
	}
}

// crash runs work up to its middle in a locker that is never heard of again.
func crash(t *testing.T, s *scripted, middle func(ctx context.Context), opts ...lock.Option) {
	t.Helper()
	opts = append([]lock.Option{lock.WithLogger(quiet), lock.WithLease(lease), lock.WithBudget(budget), lock.WithKeep(keep)}, opts...)
	l := lock.New(s, opts...)
	gone := make(chan struct{})
	go func() {
		_, _, _ = l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
			middle(ctx)
			s.every(deadEnd, settle, release, renew) // whatever this process sends now, it is dead
			close(gone)
			return nil, errors.New("never heard of")
		})
	}()
	<-gone
	synctest.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = l.Close(ctx)
	time.Sleep(2 * budget) // what was on its way
	s.every(nil, settle, release, renew)
}

// deadEnd: a dead process's commands do not exist.
var deadEnd fault = func(context.Context, func() error) error { return errors.Join(lock.ErrNotApplied, errors.New("dead")) }

func TestOnceRunsOnceAndReplays(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		var seen events
		l, other := open(lock.WithKeep(keep), lock.WithObserver(seen.observe)), open(lock.WithKeep(keep))
		receipt, replayed, err := l.Once(t.Context(), key, print1, f.run("answer"))
		require.NoError(t, err)
		require.False(t, replayed)
		require.Equal(t, "answer", string(receipt))
		for _, l := range []*lock.Locker{l, other} {
			receipt, replayed, err = l.Once(t.Context(), key, print1, f.run("another"))
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, "answer", string(receipt))
		}
		require.EqualValues(t, 1, f.runs.Load())
		require.Equal(t, 3, s.count(claim))
		require.Equal(t, 1, s.count(settle))
		require.Equal(t, 1, seen.count(lock.EventReplayed))

		_, _, err = l.Once(t.Context(), key, print2, f.run("another"))
		require.ErrorIs(t, err, lock.ErrMismatch)
		_, _, err = l.Once(t.Context(), lock.Key("user", "43"), print2, f.run("another"))
		require.NoError(t, err)
		require.EqualValues(t, 2, f.runs.Load())

		time.Sleep(keep)
		_, replayed, err = l.Once(t.Context(), key, print2, f.run("later"))
		require.NoError(t, err)
		require.False(t, replayed)
	})
}

func TestOnceWhileTheFirstRuns(t *testing.T) {
	bubble(t, func(t *testing.T, _ *scripted, open func(...lock.Option) *lock.Locker) {
		here, there := open(), open()
		_, _, err := here.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			for _, l := range []*lock.Locker{here, there} {
				_, _, err := l.Once(ctx, key, print1, nil)
				require.ErrorIs(t, err, lock.ErrHeld)
				_, _, err = l.Once(ctx, key, print2, nil)
				require.ErrorIs(t, err, lock.ErrMismatch, "422 comes before 409")
			}
			require.Equal(t, 1, lock.Attempt(ctx))
			_, ok := lock.FromContext(ctx)
			require.False(t, ok, "the lease of a receipt protects no resource")
			return nil, nil
		})
		require.NoError(t, err)
		require.Zero(t, lock.Attempt(t.Context()))
		require.Error(t, lock.Commit(t.Context()))
	})
}

func TestOnceFailureFreesTheKey(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open()
		_, _, err := l.Once(t.Context(), key, print1, f.fail(errors.New("mine")))
		require.ErrorContains(t, err, "mine")
		require.Equal(t, lock.Free, s.state(t, record).State)
		require.PanicsWithValue(t, 7, func() {
			_, _, _ = l.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) { panic(7) })
		})
		require.Equal(t, lock.Free, s.state(t, record).State)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, _ = l.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil })
		})
		wg.Wait()
		require.Equal(t, lock.Free, s.state(t, record).State)
		_, replayed, err := l.Once(t.Context(), key, print2, f.run("ok"))
		require.NoError(t, err)
		require.False(t, replayed)
	})
}

// attack A5: what happened after Commit is never run again.
func TestA5NothingFreesTheKeyAfterCommit(t *testing.T) {
	for name, end := range map[string]func() ([]byte, error){
		"error":  func() ([]byte, error) { return nil, errors.New("mine") },
		"panic":  func() ([]byte, error) { panic("mine") },
		"goexit": func() ([]byte, error) { runtime.Goexit(); return nil, nil },
	} {
		for mode, opts := range map[string][]lock.Option{"refuse": nil, "rerun": {lock.WithRerunAbandoned()}} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				bubble(t, func(t *testing.T, _ *scripted, open func(...lock.Option) *lock.Locker) {
					var f effect
					l := open(append(opts, lock.WithKeep(keep))...)
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						_, _, _ = l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
							f.runs.Add(1)
							if err := lock.Commit(ctx); err != nil {
								t.Error(err)
							}
							return end()
						})
					}()
					<-done
					receipt, replayed, err := l.Once(t.Context(), key, print1, f.run("again"))
					require.NoError(t, err)
					require.True(t, replayed)
					require.Empty(t, receipt)
					time.Sleep(keep - time.Minute)
					_, replayed, _ = l.Once(t.Context(), key, print1, f.run("again"))
					require.True(t, replayed)
					require.EqualValues(t, 1, f.runs.Load())
				})
			})
		}
	}
}

func TestCrash(t *testing.T) {
	t.Run("refuse", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
			var f effect
			l := open(lock.WithKeep(keep))
			crash(t, s, func(context.Context) { f.runs.Add(1) })
			_, _, err := l.Once(t.Context(), key, print1, f.run("again"))
			require.ErrorIs(t, err, lock.ErrHeld)
			time.Sleep(lease)
			for range 3 {
				_, _, err = l.Once(t.Context(), key, print1, f.run("again"))
				require.ErrorIs(t, err, lock.ErrAbandoned)
				// attack C2: another request does not get the key, and its error says so.
				_, _, err = l.Once(t.Context(), key, print2, f.run("again"))
				require.ErrorIs(t, err, lock.ErrMismatch)
				time.Sleep(keep / 4)
			}
			require.EqualValues(t, 1, f.runs.Load())
			s.forget(t, record)
			_, _, err = l.Once(t.Context(), key, print2, f.run("again"))
			require.NoError(t, err, "an operator has freed it")
		})
	})
	t.Run("rerun", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
			var f effect
			var seen events
			l := open(lock.WithKeep(keep), lock.WithRerunAbandoned(), lock.WithObserver(seen.observe))
			crash(t, s, func(context.Context) { f.runs.Add(1) }, lock.WithRerunAbandoned())
			time.Sleep(lease)
			_, _, err := l.Once(t.Context(), key, print2, f.run("again"))
			require.ErrorIs(t, err, lock.ErrMismatch)
			_, replayed, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				f.runs.Add(1)
				require.Equal(t, 2, lock.Attempt(ctx))
				return nil, nil
			})
			require.NoError(t, err)
			require.False(t, replayed)
			require.EqualValues(t, 2, f.runs.Load())
			require.Equal(t, 1, seen.count(lock.EventTakenOver))
		})
	})
	t.Run("rerun after commit", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
			var f effect
			l := open(lock.WithKeep(keep), lock.WithRerunAbandoned())
			crash(t, s, func(ctx context.Context) {
				f.runs.Add(1)
				if err := lock.Commit(ctx); err != nil {
					t.Error(err)
				}
			}, lock.WithRerunAbandoned())
			for range 3 {
				time.Sleep(keep / 4)
				_, _, err := l.Once(t.Context(), key, print1, f.run("again"))
				require.Error(t, err)
			}
			require.EqualValues(t, 1, f.runs.Load())
			s.forget(t, record)
		})
	})
}

// Of two that see one abandoned entry, one takes it over.
func TestTakeoverRace(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		crash(t, s, func(context.Context) {}, lock.WithRerunAbandoned())
		time.Sleep(lease)
		s.every(slow(10*time.Millisecond), claim)
		var wg sync.WaitGroup
		for range 8 {
			l := open(lock.WithKeep(keep), lock.WithRerunAbandoned())
			wg.Go(func() {
				_, _, _ = l.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
					f.runs.Add(1)
					time.Sleep(time.Second)
					return []byte("answer"), nil
				})
			})
		}
		wg.Wait()
		require.EqualValues(t, 1, f.runs.Load())
	})
}

// attack A1 c: what a lost or hung run leaves must not be deleted by a
// duplicate in its own process.
func TestA1cLostRunIsNotAnOrphan(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l := open(lock.WithKeep(keep))
		hung := make(chan struct{})
		result := make(chan error, 1)
		go func() {
			_, _, err := l.Once(context.Background(), key, print1, func(ctx context.Context) ([]byte, error) {
				f.runs.Add(1)
				s.every(hangRequest, renew)
				<-ctx.Done()
				<-hung
				return []byte("late"), nil
			})
			result <- err
		}()
		time.Sleep(2 * lease)
		for range 3 {
			_, _, err := l.Once(t.Context(), key, print1, f.run("again"))
			require.ErrorIs(t, err, lock.ErrAbandoned)
		}
		require.EqualValues(t, 1, f.runs.Load())
		// A late settle is accepted, since no caller took over.
		close(hung)
		require.NoError(t, <-result)
		receipt, replayed, err := l.Once(t.Context(), key, print1, f.run("again"))
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "late", string(receipt))
	})
}

// A first holder that comes back after a takeover gets the winner's receipt, or
// an error that says that it lost.
func TestLateSettleAfterTakeover(t *testing.T) {
	for name, settled := range map[string]bool{"settled": true, "still running": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				first, second := open(lock.WithKeep(keep), lock.WithRerunAbandoned()), open(lock.WithKeep(keep), lock.WithRerunAbandoned())
				comeBack, finish := make(chan struct{}), make(chan struct{})
				type end struct {
					receipt  []byte
					replayed bool
					err      error
				}
				ended := make(chan end, 1)
				go func() {
					r, replayed, err := first.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
						s.every(hangRequest, renew)
						<-comeBack
						return []byte("first"), nil
					})
					ended <- end{r, replayed, err}
				}()
				time.Sleep(2 * lease)
				s.every(nil, renew)
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _, err := second.Once(context.Background(), key, print1, func(context.Context) ([]byte, error) {
						<-finish
						return []byte("second"), nil
					})
					if err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait()
				if settled {
					close(finish)
					<-done
					close(comeBack)
					e := <-ended
					require.NoError(t, e.err)
					require.True(t, e.replayed)
					require.Equal(t, "second", string(e.receipt))
					return
				}
				close(comeBack)
				require.ErrorIs(t, (<-ended).err, lock.ErrLost)
				close(finish)
				<-done
			})
		})
	}
}

// attack B2.1: a settle without an answer loses neither the answer nor the key.
func TestB2SettleInTheBackground(t *testing.T) {
	for name, f := range map[string]fault{"not applied": refuse, "request lost": hangRequest, "reply lost": hangReply} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
				var runs effect
				l, other := open(lock.WithKeep(keep)), open(lock.WithKeep(keep))
				s.every(f, settle)
				receipt, replayed, err := l.Once(t.Context(), key, print1, runs.run("answer"))
				require.NoError(t, err)
				require.False(t, replayed)
				require.Equal(t, "answer", string(receipt))
				time.Sleep(10 * lease)
				_, _, err = other.Once(t.Context(), key, print1, runs.run("again"))
				if err != nil {
					require.ErrorIs(t, err, lock.ErrHeld)
				}
				s.every(nil, settle)
				time.Sleep(6 * time.Second)
				receipt, replayed, err = other.Once(t.Context(), key, print1, runs.run("again"))
				require.NoError(t, err)
				require.True(t, replayed)
				require.Equal(t, "answer", string(receipt))
				require.EqualValues(t, 1, runs.runs.Load())
			})
		})
	}
}

// attack A6 and A1 d for receipts: a twin of the claim lands after a release,
// and must not say for the length of keep that the outcome is unknown.
func TestA6LateTwinOfAFailedRun(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		var f effect
		l, other := open(lock.WithKeep(keep)), open(lock.WithKeep(keep))
		s.next(claim, late(2*time.Second))
		_, _, err := l.Once(t.Context(), key, print1, f.fail(errors.New("mine")))
		require.ErrorContains(t, err, "mine")
		time.Sleep(s.lag + time.Second)
		_, replayed, err := other.Once(t.Context(), key, print1, f.run("ok"))
		require.NoError(t, err)
		require.False(t, replayed)
	})
}

func TestDetachedWorkOutlivesItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T, _ *scripted, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithDetached())
		ctx, cancel := context.WithCancel(t.Context())
		receipt, _, err := l.Once(ctx, key, print1, func(ctx context.Context) ([]byte, error) {
			cancel()
			time.Sleep(time.Second)
			return []byte("answer"), ctx.Err()
		})
		require.NoError(t, err)
		require.Equal(t, "answer", string(receipt))
		err = l.With(lock.WithMaxHold(lease)).Do(t.Context(), key, func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, lock.ErrLost, "but not its lease")
	})
}

func TestSettleEarly(t *testing.T) {
	bubble(t, func(t *testing.T, _ *scripted, open func(...lock.Option) *lock.Locker) {
		l := open()
		_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
			require.NoError(t, early.From(ctx).SettleEarly(ctx, []byte("tombstone")))
			require.NoError(t, early.From(ctx).SettleEarly(ctx, []byte("again")))
			return nil, errors.New("and then it failed")
		})
		require.Error(t, err)
		receipt, replayed, err := l.Once(t.Context(), key, print1, nil)
		require.NoError(t, err)
		require.True(t, replayed)
		require.Equal(t, "tombstone", string(receipt))
		require.Nil(t, early.From(t.Context()))
	})
}
