package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// buyer works under sets, permits and tickets, one after the other. Its Locker is its own, as if it
// were the only caller of its process.
type buyer struct {
	crowd

	store  *witness
	locker *lock.Locker
	h      *history
	rng    *rand.Rand
	queue  *ticketQueue
	knows  int // how many permits
	moves  []moved
	tries  []try
}

// moved is an action of a buyer in a room, with the two moments between which it took effect.
type moved struct {
	move

	room     string
	from, to int64
}

// try is one attempt to take a set.
type try struct {
	room     string
	client   int
	from, to int64
	end      tryEnd
}

type tryEnd uint8

const (
	tryGranted tryEnd = iota
	tryRefused
	tryUnanswered
)

// ticketQueue has the tickets of a room, which are delivered once or twice.
type ticketQueue struct {
	mu      sync.Mutex
	tickets []ticket
}

type ticket struct {
	text, room, token string
	place             int
}

func (q *ticketQueue) put(t ticket, times int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for range times {
		q.tickets = append(q.tickets, t)
	}
}

func (q *ticketQueue) take() (t ticket, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tickets) == 0 {
		return t, false
	}
	t, q.tickets = q.tickets[0], q.tickets[1:]
	return t, true
}

func newBuyer(c crowd, w *witness, rng *rand.Rand, queue *ticketQueue) *buyer {
	opts := []lock.Option{
		lock.WithBudget(budget), lock.WithLease(endless), lock.WithMaxHold(2 * endless),
		lock.WithObserver(func(_ context.Context, e lock.Event) { w.h.counts.add("events of lockers", string(e.Kind), 1) }),
	}
	if c.fenced {
		opts = append(opts, lock.WithFencing())
	}
	s := lock.Store(w)
	if c.atOnce {
		s = setWitness{w}
	}
	b := &buyer{crowd: c, store: w, h: w.h, rng: rng, queue: queue, knows: permits, locker: lock.New(s, opts...)}
	if w.client%2 == 0 {
		b.knows += c.more
	}
	return b
}

// work buys until the history is long enough.
func (b *buyer) work(ctx context.Context, r *room) {
	wear := 0
	for b.h.size() < operations {
		wear = b.turn(ctx, r.next(wear))
		time.Sleep(time.Duration(b.rng.Int64N(int64(b.rest))))
	}
}

// close completes what is done in the background.
func (b *buyer) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	require.NoError(t, b.locker.Close(ctx))
}

// turn does one thing in a room, and returns how many outcomes of calls to the store are unknown.
func (b *buyer) turn(ctx context.Context, room string) (wear int) {
	before := b.store.unknowns.Load()
	if t, ok := b.queue.take(); ok {
		b.resume(labelled(ctx, t.room), t)
	} else {
		ctx := labelled(ctx, room)
		switch b.rng.IntN(6) {
		case 0, 1:
			b.permit(ctx, room)
		case 2:
			b.handOver(ctx, room)
		default:
			b.set(ctx, room)
		}
	}
	return int(b.store.unknowns.Load() - before)
}

func itemOf(room string, place int) string { return fmt.Sprintf("%s-item%d", room, place) }

func slotsOf(room string, n int) []string { return lock.Slots(room+"-export", n) }

func (b *buyer) rests(most time.Duration) { time.Sleep(time.Duration(b.rng.Int64N(int64(most)))) }

func (b *buyer) note(m move, room string, from, to int64) {
	b.moves = append(b.moves, moved{m, room, from, to})
}

// placeOf returns the place of a key in its room.
func placeOf(key string) int {
	if _, slot, ok := strings.Cut(key, "#"); ok {
		n, _ := strconv.Atoi(slot)
		return items + n - 1
	}
	return int(key[len(key)-1] - '0')
}

// patienceForSets is the WithWait of every other set.
const patienceForSets = 100 * time.Millisecond

// set works under one to four of the items.
func (b *buyer) set(ctx context.Context, room string) {
	var keys []string
	for _, place := range b.rng.Perm(items)[:1+b.rng.IntN(items-1)] {
		keys = append(keys, itemOf(room, place))
	}
	l := b.locker
	if b.nested || b.rng.IntN(2) == 0 {
		l = l.With(lock.WithWait(patienceForSets))
	}
	from := b.h.now()
	held, err := b.take(ctx, l, keys)
	to := b.h.now()
	t := try{room, b.store.client, from, to, tryUnanswered}
	switch {
	case err == nil:
		t.end = tryGranted
	case errors.Is(err, lock.ErrHeld) && !errors.Is(err, lock.ErrUnavailable):
		t.end = tryRefused
	}
	b.tries = append(b.tries, t)
	if err != nil {
		return
	}
	b.h.counts.add("sets", fmt.Sprintf("of %d", len(keys)), 1)
	grips := b.granted(from, to, keys...)
	b.note(move{step: stepTake, grips: grips}, room, from, to)
	b.rests(3 * time.Millisecond)
	from = b.h.now()
	err = held.Release(ctx)
	b.freed(grips, room, err, from)
}

// releaser is a set, or a lease.
type releaser interface {
	Release(ctx context.Context) error
}

// take takes all keys of a set.
func (b *buyer) take(ctx context.Context, l *lock.Locker, keys []string) (releaser, error) {
	if b.nested {
		return nest(ctx, l, keys)
	}
	return l.AcquireAll(ctx, keys) //nolint:wrapcheck // judged by its caller
}

// freed notes the end of a set: of each key at any time from now on, if the store did not answer
// and it is completed in the background.
func (b *buyer) freed(grips []grip, room string, err error, from int64) {
	to := b.h.now()
	switch {
	case errors.Is(err, lock.ErrLost):
		b.note(move{step: stepLost, grips: grips}, room, from, to)
		return
	case err != nil:
		to = never
	}
	for _, g := range grips {
		b.note(move{step: stepFree, grips: []grip{g}}, room, from, to)
	}
}

// permit works under one of the permits.
func (b *buyer) permit(ctx context.Context, room string) {
	from := b.h.now()
	lease, err := b.locker.AcquireAny(ctx, slotsOf(room, b.knows))
	to := b.h.now()
	if err != nil {
		return
	}
	b.h.counts.add("sets", "permits", 1)
	grips := b.granted(from, to, lease.Key())
	b.note(move{step: stepTake, grips: grips}, room, from, to)
	b.rests(20 * time.Millisecond)
	from = b.h.now()
	err = lease.Release(ctx)
	b.freed(grips, room, err, from)
}

// briefPatience is the patience of every fourth ticket, which may be over before it is resumed.
const briefPatience = 15 * time.Millisecond

// handOver takes an item, and hands it over by a ticket.
func (b *buyer) handOver(ctx context.Context, room string) {
	place := b.rng.IntN(items)
	key := itemOf(room, place)
	from := b.h.now()
	lease, err := b.locker.Acquire(ctx, key)
	to := b.h.now()
	if err != nil {
		return
	}
	held := b.granted(from, to, key)[0]
	b.note(move{step: stepTake, grips: []grip{held}}, room, from, to)
	patience := endless
	if b.rng.IntN(4) == 0 {
		patience = briefPatience
	}
	from = b.h.now()
	text, err := lease.HandOver(ctx, patience)
	to = b.h.now()
	if err != nil {
		b.freed([]grip{held}, room, err, from)
		return
	}
	b.h.counts.add("tickets", "given", 1)
	waiting := b.granted(from, to, key)[0]
	b.note(move{step: stepReplace, grips: []grip{held}, next: waiting.token}, room, from, to)
	if patience < endless {
		b.note(move{step: stepLapse, grips: []grip{waiting}}, room, later(from, patience-b.h.slack()), never)
	}
	b.queue.put(ticket{text, room, waiting.token, place}, 1+b.rng.IntN(2))
}

// resume works under the lease of a ticket.
func (b *buyer) resume(ctx context.Context, t ticket) {
	waiting := grip{t.place, t.token}
	from := b.h.now()
	lease, err := b.locker.Resume(ctx, t.text)
	to := b.h.now()
	switch {
	case errors.Is(err, lock.ErrLost), err != nil && strings.Contains(err.Error(), "the key of the ticket is free"):
		b.h.counts.add("tickets", "refused", 1)
		b.note(move{step: stepSpent, grips: []grip{waiting}}, t.room, from, to)
	case errors.Is(err, lock.ErrUnknown):
		b.h.counts.add("tickets", "without an answer", 1)
		b.note(move{step: stepUseUp, grips: []grip{waiting}}, t.room, from, never)
	}
	if err != nil {
		return
	}
	b.h.counts.add("tickets", "resumed", 1)
	held := b.granted(from, to, itemOf(t.room, t.place))[0]
	b.note(move{step: stepReplace, grips: []grip{waiting}, next: held.token}, t.room, from, to)
	b.rests(3 * time.Millisecond)
	from = b.h.now()
	err = lease.Release(ctx)
	b.freed([]grip{held}, t.room, err, from)
}

// granted returns the tokens that the store has granted this buyer for keys between from and to.
func (b *buyer) granted(from, to int64, keys ...string) []grip {
	b.h.mu.Lock()
	defer b.h.mu.Unlock()
	grips := make([]grip, len(keys))
	for i, key := range keys {
		grips[i] = grip{placeOf(key), "no answer has granted " + key}
		for _, r := range slices.Backward(b.h.records) {
			if r.client == b.store.client && r.in.key == key && r.granted() && from <= r.in.from && r.returned <= to {
				grips[i].token = r.in.token
				break
			}
		}
	}
	return grips
}
