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

// wait returns when done is closed, or after d, a time that is extended as bounds are:
// on a late machine, a part that is slow for two seconds would seem fast otherwise.
func (l *lateness) wait(done <-chan struct{}, d time.Duration) {
	began, late := time.Now(), l.load()
	for {
		left := d - (time.Since(began) - (l.load() - late))
		if left <= 0 {
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-done:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// eventually reports whether condition is met within d, which is extended as bounds are.
func (l *lateness) eventually(condition func() bool, d time.Duration) bool {
	began, late := time.Now(), l.load()
	for !condition() {
		if time.Since(began)-(l.load()-late) > d {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
}
