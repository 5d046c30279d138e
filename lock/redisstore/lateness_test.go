package redisstore_test

import (
	"sync/atomic"
	"testing"
	"time"
)

// lateness adds up by how much the timers of this process are late. Bounds in real
// time are extended by it: a machine that does not run this process for a second
// is no failure of the code whose time is measured.
type lateness struct{ sum atomic.Int64 }

func watchLateness(tb testing.TB) *lateness {
	tb.Helper()
	const beat = 10 * time.Millisecond
	var l lateness
	ticker := time.NewTicker(beat)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for last := time.Now(); ; {
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
			now := time.Now()
			l.sum.Add(int64(max(now.Sub(last)-beat, 0)))
			last = now
		}
	}()
	tb.Cleanup(func() {
		close(quit)
		<-done
		ticker.Stop()
	})
	return &l
}

func (l *lateness) load() time.Duration { return time.Duration(l.sum.Load()) }
