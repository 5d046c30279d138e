package faults_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
)

const (
	lockKeys = 4
	runKeys  = 6 // runs that are asked for at a time
)

// guards are the kinds of keys that all hosts want, and of those that one host has for itself.
func (h *host) guards() map[string]*lock.Locker {
	return map[string]*lock.Locker{"user": h.locker, "guarded": h.guarded}
}

func sharedKey(kind string, i int) string { return fmt.Sprintf("%s=%d", kind, i) }
func (h *host) ownKey(kind string) string { return fmt.Sprintf("own%s=%d", kind, h.n) }

var errHandler = errors.New("the handler fails, before its effect")

func isHeld(err error) bool { return errors.Is(err, lock.ErrHeld) }

// between draws from [low, high).
func between(plan *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(plan.Int64N(int64(high-low)))
}

// lock is one caller of a key that all hosts want.
func (h *host) lock(kind string) func(ctx context.Context, plan *rand.Rand) {
	return func(ctx context.Context, plan *rand.Rand) {
		_ = h.do(ctx, plan, kind, sharedKey(kind, plan.IntN(lockKeys)), 60)
	}
}

// lockOwn is the only caller of its key, so no other holder can cause a refusal.
func (h *host) lockOwn(kind string) func(ctx context.Context, plan *rand.Rand) {
	return func(ctx context.Context, plan *rand.Rand) {
		// A caller that leaves while the previous release is still unanswered may be
		// refused because of it: the caller has not waited for the end of that release.
		err := h.do(ctx, plan, kind, h.ownKey(kind), 300)
		if refused, is := errors.AsType[*lock.RefusedError](err); is && isHeld(err) && !errors.Is(err, context.DeadlineExceeded) {
			h.c.book.violated(noSelfConflict, "%s is refused, and has no other caller: %v, %+v", h.ownKey(kind), err, refused.Entry)
		}
	}
}

// do takes key, works, and checks what the caller of Do sees. Twice in rare
// calls the work takes longer than a lease, or longer than it may.
func (h *host) do(ctx context.Context, plan *rand.Rand, kind, key string, rare int) error {
	b, l := h.c.book, h.guards()[kind]
	work := between(plan, 0, 15*time.Millisecond)
	hangs := false
	switch plan.IntN(rare) {
	case 0:
		work = between(plan, campaignLease, 2*campaignLease)
	case 1:
		hangs = true
	}
	patience := time.Hour
	if plan.IntN(8) == 0 {
		patience = between(plan, time.Millisecond, 60*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()

	var granted, worked time.Time
	asked, late := time.Now(), b.timers.sum()
	err := l.Do(ctx, key, func(leased context.Context) error {
		at := b.enter(leased, key)
		defer b.leave(at)
		granted = at.since
		lease, _ := lock.FromContext(leased)
		if fence, ok := lease.Fence(); ok {
			b.write(at, fence)
		} else if l == h.guarded {
			b.violated(fenced, "a guarded lease on %s has no fence", key)
		}
		h.work(ctx, at, work, hangs)
		worked = time.Now()
		return nil
	})
	now := time.Now()
	switch {
	case granted.IsZero():
		h.notGranted(ctx, key, asked, late, err)
	case errors.Is(err, lock.ErrLost):
		h.c.outcomes.Add("do: lost")
		if at := (&holding{since: granted}); at.young(now) {
			b.violated(ownRelease, "a valid lease on %s was taken away after %v: %v", key, now.Sub(granted), err)
		}
	case err != nil && !errors.Is(err, lock.ErrUnavailable):
		b.violated(threeOutcomes, "work under %s ended in %v", key, err)
	case err == nil:
		h.c.outcomes.Add("do: done")
	default:
		h.c.outcomes.Add("do: done, release unanswered")
	}
	if !worked.IsZero() {
		b.bounded(campaignBudget, now.Sub(worked), late, "the release of %s", key)
	}
	if err != nil {
		time.Sleep(between(plan, time.Millisecond, 10*time.Millisecond))
	}
	return err
}

// work takes as long as it should, or ends with its lease.
func (h *host) work(caller context.Context, at *holding, long time.Duration, hangs bool) {
	if hangs {
		long = campaignHold + 2*campaignSlack // notified long before
	}
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-t.C:
		if hangs {
			h.c.book.violated(notified, "a holder of %s was never notified", at.key)
		}
	case <-at.ctx.Done():
		if caller.Err() == nil {
			h.c.book.wasNotified(at)
		}
	case <-h.c.stop:
	}
}

// notGranted checks the answer of an acquire that ended without a lease.
func (h *host) notGranted(ctx context.Context, key string, asked time.Time, late time.Duration, err error) {
	took := time.Since(asked)
	switch {
	case errors.Is(err, lock.ErrUnknown):
		h.c.outcomes.Add("acquire: unknown")
	case errors.Is(err, lock.ErrUnavailable):
		h.c.outcomes.Add("acquire: not applied")
	case isHeld(err), errors.Is(err, lock.ErrAbandoned):
		h.c.outcomes.Add("acquire: refused")
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		h.c.outcomes.Add("acquire: caller left")
	default:
		h.c.book.violated(threeOutcomes, "an acquire of %s ended in %v", key, err)
	}
	h.c.book.bounded(campaignBudget, took, late, "an acquire of %s (%v)", key, err)
}

// runOnce asks for a run that others ask for too.
func (h *host) runOnce(ctx context.Context, plan *rand.Rand) {
	h.once(ctx, plan, h.locker, h.c.runKey("run", plan), plan.IntN(10) == 0)
}

// runAgain is the same where an abandoned run may be taken over.
func (h *host) runAgain(ctx context.Context, plan *rand.Rand) {
	key := h.c.runKey("rerun", plan)
	if n := h.c.victims.Load(); n > 0 && plan.IntN(4) == 0 {
		key = victimKey(n)
	}
	h.once(ctx, plan, h.rerun, key, plan.IntN(10) == 0)
}

// runKey names one of the last runs, and now and then a new one.
func (c *campaign) runKey(kind string, plan *rand.Rand) string {
	n := c.runs.Load()
	if plan.IntN(3*runKeys) == 0 {
		n = c.runs.Add(1)
	}
	return fmt.Sprintf("%s=%d", kind, max(n-plan.Int64N(runKeys), 0))
}

func (h *host) once(ctx context.Context, plan *rand.Rand, l *lock.Locker, key string, fails bool) {
	b := h.c.book
	work := between(plan, 0, 10*time.Millisecond)
	if plan.IntN(40) == 0 {
		work = between(plan, campaignLease/2, 2*campaignLease)
	}
	answer := fmt.Sprintf("%s by %d, %d", answerOf(key), h.n, plan.Uint64())
	var ran, worked time.Time
	asked, late := time.Now(), b.timers.sum()
	receipt, replayed, err := l.Once(ctx, key, nil, func(ctx context.Context) ([]byte, error) {
		at := b.enter(ctx, key)
		defer b.leave(at)
		ran = at.since
		t := time.NewTimer(work)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			fails = true
		}
		worked = time.Now()
		if fails {
			return nil, errHandler
		}
		b.effect(key)
		return []byte(answer), nil
	})
	if !worked.IsZero() {
		b.bounded(2*campaignBudget, time.Since(worked), late, "the settle of %s", key)
	}
	switch {
	case err == nil:
		h.c.outcomes.Add(map[bool]string{true: "once: replayed", false: "once: ran"}[replayed])
		b.answered(key, receipt, replayed)
		if !strings.HasPrefix(string(receipt), answerOf(key)) {
			b.violated(sameAnswer, "%s was answered %q", key, receipt)
		}
		return
	case errors.Is(err, errHandler):
		h.c.outcomes.Add("once: handler failed")
	case errors.Is(err, lock.ErrLost):
		h.c.outcomes.Add("once: lost")
	case ran.IsZero():
		h.notGranted(ctx, key, asked, late, err)
	default:
		b.violated(threeOutcomes, "the run of %s ended in %v", key, err)
	}
	time.Sleep(between(plan, time.Millisecond, 10*time.Millisecond))
}

// answerOf returns the beginning of every answer of key. The fault rules recognise a settle by it.
func answerOf(key string) string { return answerPrefix + key }

// finishRuns asks for every run once more: what was left unfinished by a lost
// lease or a killed process is taken over, and nothing else runs again.
func (h *host) finishRuns(calm time.Time) {
	for n := range h.c.runs.Load() + 1 {
		for kind, l := range map[string]*lock.Locker{"run": h.locker, "rerun": h.rerun} {
			h.finishRun(l, fmt.Sprintf("%s=%d", kind, n), calm)
		}
	}
	for n := range h.c.victims.Load() {
		h.finishRun(h.rerun, victimKey(n+1), calm)
	}
}

// settled is the time after the last fault by which the background has followed up everything: it
// asks again after 5 s at the latest.
const settled = 10*time.Second + campaignSlack

func (h *host) finishRun(l *lock.Locker, key string, calm time.Time) {
	b := h.c.book
	h.atLast(key, calm, settled, func() error {
		receipt, replayed, err := l.Once(context.Background(), key, nil, func(context.Context) ([]byte, error) {
			b.effect(key)
			return []byte(answerOf(key) + ", at last"), nil
		})
		if err == nil {
			b.answered(key, receipt, replayed)
		}
		return err
	})
}
