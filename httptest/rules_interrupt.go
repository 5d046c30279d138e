package latchtest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

func interruptRules() []rule {
	return []rule{
		{
			"returns_when_context_ends",
			"a call returns when its context ends, within a second, whatever becomes of its command",
			returnsWhenContextEnds,
		},
		{
			"interrupted_outcome_is_true",
			"a call whose context ends while it runs returns an error that matches ErrNotApplied only if it has no effect, " +
				"then or later, and no error only if it has its effect",
			interruptedOutcomeIsTrue,
		},
	}
}

// interruptions counts the storms of calls that are interrupted, each at another time.
const interruptions = 8

func returnsWhenContextEnds(p *probe) {
	done, cancel := context.WithCancel(p.Context())
	cancel()
	p.newStorm().begin(done).end("a context that had ended before the call")
	p.interruptStorms(func(*storm) {})
}

func interruptedOutcomeIsTrue(p *probe) {
	p.interruptStorms(func(s *storm) {
		s.wantHonest("at once")
		p.waitOutShort()
		s.wantHonest("a while later")
	})
}

// interruptStorms interrupts storms of calls, by cancelling their context and by its deadline.
// The moments go from soon after the first call to shortly before the last one is done.
func (p *probe) interruptStorms(each func(s *storm)) {
	p.Helper()
	whole := p.newStorm().run()
	for i := range interruptions {
		s := p.newStorm()
		after := whole * time.Duration(2*i+1) / (2 * interruptions)
		ctx, cancel := context.WithCancel(p.Context())
		what, timer := "a context that was cancelled", time.AfterFunc(after, cancel)
		if i%2 == 1 {
			what = "a context whose deadline has passed"
			ctx, cancel = context.WithTimeout(p.Context(), after)
		} else { // also interrupts the quick ones
			s.onReturn(len(s.calls)*(2*i+1)/(2*interruptions), cancel)
		}
		s.begin(ctx)
		<-ctx.Done()
		s.end(what)
		timer.Stop()
		cancel()
		each(s)
	}
}

// storm is many calls at once, each on its own key.
type storm struct {
	*probe

	calls    []*interrupted
	returned atomic.Int32
	done     chan struct{}
	at       int32 // the number of returned calls after which then runs
	then     func()
}

// newStorm prepares a storm of every method.
func (p *probe) newStorm() *storm {
	p.Helper()
	s := &storm{probe: p, done: make(chan struct{}), at: -1}
	for range racers / 8 {
		s.calls = append(s.calls, p.interruptible()...)
	}
	ctx, cancel := p.within()
	defer cancel()
	var prepared sync.WaitGroup
	for _, c := range s.calls {
		c.key = p.key()
		if c.before == lock.Free {
			continue
		}
		lease := p.long
		if c.before == lock.Abandoned {
			lease = p.short
		}
		prepared.Go(func() { _, c.err = p.store.Claim(ctx, c.key, p.asked(p.claimOf(c.holder, lease, p.long))) })
	}
	prepared.Wait()
	for _, c := range s.calls {
		if c.err != nil {
			p.failf("Claim: %v", c.err)
		}
		if c.before == lock.Abandoned {
			p.waitWhile(c.key, lock.Held)
		}
	}
	return s
}

// onReturn runs f when n calls have returned.
func (s *storm) onReturn(n int, f func()) { s.at, s.then = int32(n), f } //nolint:gosec // fewer than racers

// begin makes all calls.
func (s *storm) begin(ctx context.Context) *storm {
	for _, c := range s.calls {
		go func() {
			c.ok, c.err = c.call(ctx, c.key)
			c.returned.Store(true)
			n := s.returned.Add(1)
			if n == s.at {
				s.then()
			}
			if int(n) == len(s.calls) {
				close(s.done)
			}
		}()
	}
	return s
}

// run makes all calls and returns their duration.
func (s *storm) run() time.Duration {
	s.Helper()
	ctx, cancel := s.within()
	defer cancel()
	began := time.Now()
	s.begin(ctx)
	select {
	case <-s.done:
	case <-ctx.Done():
		s.failf("of %d calls at once %d have not returned after %v", len(s.calls), len(s.calls)-int(s.returned.Load()), callTimeout)
	}
	return time.Since(began)
}

// end waits for all calls after the end of their context, in many short steps. So a machine that
// does not run the process for a while does not make the store appear late.
func (s *storm) end(when string) {
	s.Helper()
	const steps = 20
	for range steps {
		timer := time.NewTimer(time.Second / steps)
		select {
		case <-s.done:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
	for _, c := range s.calls {
		if !c.returned.Load() {
			s.failf("%s with %s has not returned a second later", c.name, when)
		}
	}
}

// wantHonest checks the results of the calls against the entries under their keys.
func (s *storm) wantHonest(when string) {
	s.Helper()
	ctx, cancel := s.within()
	defer cancel()
	entries, errs := make([]lock.Entry, len(s.calls)), make([]error, len(s.calls))
	var read sync.WaitGroup
	for i, c := range s.calls {
		read.Go(func() { entries[i], errs[i] = s.store.Get(ctx, c.key) })
	}
	read.Wait()
	for i, c := range s.calls {
		if errs[i] != nil {
			s.failf("Get: %v", errs[i])
		}
		if lie := c.lie(entries[i]); lie != "" {
			s.failf("%s that was interrupted returned %t and the error %v, and %s Get = %s: %s", c.name, c.ok, c.err, when, show(entries[i]), lie)
		}
	}
}
