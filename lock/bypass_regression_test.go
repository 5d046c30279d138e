package lock_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/failopen"
	"github.com/httplatch/httplatch/lock"
)

// An observer that ended the goroutine when it was notified that work is to run without the
// store had the acquire counted as ended twice: Close never found all leases ended.
func TestRegressionObserverEndsABypass(t *testing.T) {
	bubble(t, func(t *testing.T, s *scripted, open func(...lock.Option) *lock.Locker) {
		l := open(lock.WithObserver(func(_ context.Context, e lock.Event) {
			if e.Kind == lock.EventBypassed {
				runtime.Goexit()
			}
		}))
		s.every(refuse, claim)
		done := make(chan struct{})
		go func() {
			defer close(done)
			var hold failopen.Hold
			defer func() {
				if hold.End != nil {
					hold.End()
				}
			}()
			_, _ = l.Acquire(failopen.With(context.Background(), &hold), key)
		}()
		<-done
		require.Zero(t, l.Stats().Active)
	})
}
