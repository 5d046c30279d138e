package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

const (
	setKeys     = 14 // of which a set has one to eight
	reportKeys  = 8  // which are handed over; now and then one of a set is
	mostPermits = 5
)

func itemKey(i int) string { return fmt.Sprintf("item=%d", i) }

func reportKey(i int) string { return fmt.Sprintf("report=%d", i) }

// allItems are all keys.
func allItems() (keys []string) {
	for i := range setKeys {
		keys = append(keys, itemKey(i))
	}
	for i := range reportKeys {
		keys = append(keys, reportKey(i))
	}
	for n := range mostPermits {
		keys = append(keys, lock.Slots(exportName(n+1), n+1)...)
	}
	return keys
}

func exportName(n int) string { return fmt.Sprintf("export-%d", n) }

// setLog records the actions of a process.
type setLog interface {
	// enter notes a holder, and returns the end of its work. ctx is the context of its leases.
	enter(ctx context.Context, n int, names []string) (leave func())
	resumed(ticket int)
	count(what string)
	violated(promise, format string, args ...any)
	// late is by how much the timers of the process have been late in all.
	late() time.Duration
}

// buyer is a process's worth of sets, permits and hand-overs.
type buyer struct {
	setLog

	locker *lock.Locker
	direct *redisstore.Store // without faults
	more   int               // a mistake: it believes in so many permits more
}

// work draws how long a caller works: now and then for longer than a lease.
func (b *buyer) work(plan *rand.Rand) time.Duration {
	if plan.IntN(40) == 0 {
		return between(plan, campaignLease/2, 2*campaignLease)
	}
	return between(plan, 0, 40*time.Millisecond)
}

// set works under one to eight keys. Other callers want some of them, too.
func (b *buyer) set(ctx context.Context, plan *rand.Rand) {
	var keys []string
	for _, i := range plan.Perm(setKeys)[:1+plan.IntN(8)] {
		keys = append(keys, itemKey(i))
	}
	l, wait := b.locker, time.Duration(0)
	if plan.IntN(3) > 0 {
		wait = between(plan, time.Millisecond, time.Second)
		l = l.With(lock.WithWait(wait))
	}
	began, late := time.Now(), b.late()
	s, err := l.AcquireAll(ctx, keys)
	if err != nil {
		b.count("sets refused or unanswered")
		// A claim of all keys, one of each, and the release of those that were granted.
		most := time.Duration(len(keys)+2)*campaignBudget + wait
		if took := time.Since(began); took > most+campaignSlack+b.late()-late {
			b.violated(bounded, "a set of %d keys took %v, not at most %v", len(keys), took, most)
		}
		pauseFor(ctx, between(plan, 0, 40*time.Millisecond))
		return
	}
	b.count(fmt.Sprintf("set of %d", len(keys)))
	b.hold(s.Context(), b.work(plan), 1, keys, keys)
	_ = s.Release(ctx)
}

// permit works under one of one to five permits.
func (b *buyer) permit(ctx context.Context, plan *rand.Rand) {
	n := 1 + plan.IntN(mostPermits)
	lease, err := b.locker.AcquireAny(ctx, lock.Slots(exportName(n), n+b.more))
	if err != nil {
		pauseFor(ctx, between(plan, 0, 40*time.Millisecond))
		return
	}
	b.count(fmt.Sprintf("one of %d permits", n))
	b.hold(lease.Context(), b.work(plan), n, []string{exportName(n)}, []string{lease.Key()})
	_ = lease.Release(ctx)
}

// handOver takes a key and returns a ticket for it, "" if there is none.
func (b *buyer) handOver(ctx context.Context, plan *rand.Rand) (ticket, key string) {
	key = reportKey(plan.IntN(reportKeys))
	if plan.IntN(8) == 0 {
		key = itemKey(plan.IntN(setKeys))
	}
	lease, err := b.locker.Acquire(ctx, key)
	if err != nil {
		pauseFor(ctx, between(plan, 0, 40*time.Millisecond))
		return "", key
	}
	b.hold(lease.Context(), between(plan, 0, 20*time.Millisecond), 1, []string{key}, []string{key})
	ticket, err = lease.HandOver(ctx, between(plan, time.Millisecond, campaignLease))
	if err != nil {
		b.count("hand-over failed")
		_ = lease.Release(ctx)
		return "", key
	}
	b.count("ticket")
	return ticket, key
}

// resume works under a ticket that was delivered.
func (b *buyer) resume(ctx context.Context, id int, ticket, key string, work time.Duration) {
	lease, err := b.locker.Resume(ctx, ticket)
	if err != nil {
		b.count("ticket refused or unanswered")
		return
	}
	b.resumed(id)
	b.count("ticket resumed")
	b.hold(lease.Context(), work, 1, []string{key}, []string{key})
	_ = lease.Release(ctx)
}

// hold works under keys. Each of names can have n holders.
func (b *buyer) hold(ctx context.Context, work time.Duration, n int, names, keys []string) {
	leave := b.enter(ctx, n, names)
	defer leave()
	b.allHeld(ctx, keys)
	pauseFor(ctx, work)
	b.allHeld(ctx, keys)
}

// allHeld looks on the server whether the keys of valid work are held.
func (b *buyer) allHeld(ctx context.Context, keys []string) {
	for _, key := range keys {
		look, end := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
		e, err := b.direct.Get(look, key)
		end()
		if err == nil && e.State != lock.Held && ctx.Err() == nil { // so it was valid at the look, too
			b.violated(allOrNone, "%s of %v is %v", key, keys, e.State)
		}
	}
}

// pauseFor returns after d, or at the end of ctx.
func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
