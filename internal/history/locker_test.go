package history_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// user works under the leases of a Locker, one after the other. The Locker is
// its own, so that no local refusal replaces the answer of the store.
type user struct {
	store  *witness
	locker *lock.Locker
	rest   time.Duration
	h      *history
	rng    *rand.Rand
	done   []done
	worked int
}

// done is a deed of a user, and the two moments between which it took effect.
type done struct {
	deed
	from, to int64
}

// budget is the time for which a Locker waits for one exchange. It repeats a call that is not
// answered within a third of it.
const budget = 3 * patienceOfCall

func newUser(f family, s *witness, rng *rand.Rand) *user {
	opts := []lock.Option{
		lock.WithBudget(budget), lock.WithLease(endless), lock.WithMaxHold(2 * endless), lock.WithKeep(endless),
		lock.WithObserver(func(_ context.Context, e lock.Event) { s.h.counts.add("events of lockers", string(e.Kind), 1) }),
	}
	if f.fenced {
		opts = append(opts, lock.WithFencing())
	}
	return &user{store: s, h: s.h, rest: f.rest, rng: rng, locker: lock.New(s, opts...)}
}

// work takes keys until the history is long enough.
func (u *user) work(ctx context.Context, r *room) {
	wear := 0
	for u.h.size() < operations {
		wear = u.turn(ctx, r.next(wear))
		time.Sleep(time.Duration(u.rng.Int64N(int64(u.rest))))
	}
}

// close completes what is done in the background.
func (u *user) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
	defer cancel()
	require.NoError(t, u.locker.Close(ctx))
}

// turn takes a key, if it can, and returns how many outcomes of calls to the
// store are unknown, and one more if there was a receipt.
func (u *user) turn(ctx context.Context, key string) (wear int) {
	before := u.store.unknowns.Load()
	if u.rng.IntN(3) == 0 {
		key += "-once"
		u.once(labelled(ctx, key), key)
	} else {
		u.lease(labelled(ctx, key), key)
	}
	if last := len(u.done) - 1; last >= 0 && (u.done[last].act == actSettled || u.done[last].act == actReplay) {
		wear++
	}
	return wear + int(u.store.unknowns.Load()-before)
}

// lease takes a key, and extends and ends its lease.
func (u *user) lease(ctx context.Context, key string) {
	from := u.h.now()
	lease, err := u.locker.Acquire(ctx, key)
	to := u.h.now()
	if err != nil {
		u.refused(key, err, from, to)
		return
	}
	d := deed{act: actTake, key: key, token: u.granted(from, to)}
	u.note(d, from, to)
	if u.rng.IntN(3) == 0 {
		d.act = actExtend
		from = u.h.now()
		if err := lease.Extend(ctx); !errors.Is(err, lock.ErrUnavailable) { // else it goes on as it was
			u.ended(d, err, from)
		}
	}
	if u.rng.IntN(12) == 0 {
		d.act, d.receipt = actSettle, "cool-down"
		from = u.h.now()
		err = lease.Settle(ctx, nil, endless)
	} else {
		d.act = actFree
		from = u.h.now()
		err = lease.Release(ctx)
	}
	u.ended(d, err, from)
}

var errWork = errors.New("the work failed")

// once does the same in one call, which is two operations: its work is between.
func (u *user) once(ctx context.Context, key string) {
	u.worked++
	d := deed{act: actTake, key: key, receipt: fmt.Sprintf("receipt %d.%d", u.store.client, u.worked)}
	fails := u.rng.IntN(2) == 0
	from := u.h.now()
	worked := int64(0)
	receipt, replayed, err := u.locker.Once(ctx, key, nil, func(context.Context) ([]byte, error) {
		worked = u.h.now()
		d.token = u.granted(from, worked)
		u.note(d, from, worked)
		if fails {
			return nil, errWork
		}
		return []byte(d.receipt), nil
	})
	switch {
	case replayed:
		u.note(deed{act: actReplay, key: key, receipt: string(receipt)}, from, u.h.now())
		return
	case worked == 0:
		u.refused(key, err, from, u.h.now())
		return
	case fails:
		d.act = actFree
	default:
		d.act = actSettle
	}
	if !errors.Is(err, lock.ErrLost) {
		err = u.unanswered(d)
	}
	u.ended(d, err, worked)
}

// refused notes an acquire that was not granted, if it says by what.
func (u *user) refused(key string, err error, from, to int64) {
	refused, ok := errors.AsType[*lock.RefusedError](err)
	if !ok {
		return
	}
	d := deed{act: actRefused, key: key, token: refused.Entry.Token}
	if errors.Is(err, lock.ErrSettled) {
		d.act = actSettled
	}
	u.note(d, from, to)
}

// ended notes what was done to a lease: at any time from now on, if the store
// did not answer and it is completed in the background.
func (u *user) ended(d deed, err error, from int64) {
	to := u.h.now()
	switch {
	case errors.Is(err, lock.ErrLost):
		d.act = actLost
	case err != nil:
		to = never
	}
	u.note(d, from, to)
}

func (u *user) note(d deed, from, to int64) {
	d.client = u.store.client
	u.done = append(u.done, done{d, from, to})
}
