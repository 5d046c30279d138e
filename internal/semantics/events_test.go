package semantics_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// then is an event in addition to the requests.
func then(words string, f func(w *world) error) step {
	return step{sent: words, run: func(w *world, _ *step) error { return f(w) }}
}

// goesOn lets the handlers go on, and waits until all requests are served.
func goesOn() step {
	return then("its handler ends", func(w *world) error {
		w.letGo()
		return w.await("all are served", func() bool { return w.serving.Load() == 0 })
	})
}

// handled waits until a handler has begun.
func handled() step {
	return then("its handler runs", func(w *world) error {
		return w.await("the handler runs", func() bool { return w.effects.Load() > 0 })
	})
}

// dies takes the first process away from the store, and lets its lease end.
func dies() step {
	return then("its process dies, and its lease ends", func(w *world) error {
		w.front.dead.Store(true)
		return w.lapse()
	})
}

// vanishes takes the first process away from the store, while its lease runs.
func vanishes() step { return offline("its process dies") }

// down cuts the first process off from the store.
func down() step { return offline("the store goes down") }

func offline(words string) step {
	return then(words, func(w *world) error {
		w.front.dead.Store(true)
		return nil
	})
}

// up ends that.
func up() step {
	return then("the store is back", func(w *world) error {
		w.front.mend()
		return nil
	})
}

// forgotten removes the entry that was claimed last, as an operator would.
func forgotten() step {
	return then("an operator removes its entry", func(w *world) error {
		inspector, ok := w.base.(lock.Inspector)
		if !ok {
			return fmt.Errorf("%T is no lock.Inspector", w.base)
		}
		key, token := w.front.claimed()
		removed, err := inspector.Forget(w.context(), key, token)
		if err == nil && !removed {
			err = errors.New("there was nothing to remove")
		}
		return err
	})
}

// lapse waits until the lease of the last claim is over at the store.
func (w *world) lapse() error {
	key, _ := w.front.claimed()
	return w.await("the lease ends", func() bool {
		e, err := w.base.Get(w.context(), key)
		return err == nil && e.State != lock.Held
	})
}

// front is a store as one process sees it, whose link can fail.
type front struct {
	lock.Store
	dead   atomic.Bool // nothing more arrives: the process has died, or the link
	brief  bool        // claims get a lease of a millisecond, so that no row waits for the end of one
	silent atomic.Bool // settles are applied, and their answers lost
	full   atomic.Bool // claims find no room

	mu    sync.Mutex
	key   string // of the last claim
	token string
}

var errDead = fmt.Errorf("%w: the link is down", lock.ErrNotApplied)

func (f *front) mend() {
	f.dead.Store(false)
	f.silent.Store(false)
	f.full.Store(false)
}

func (f *front) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	switch {
	case f.dead.Load():
		return lock.Entry{}, errDead
	case f.full.Load():
		return lock.Entry{}, lock.ErrFull
	case f.brief:
		c.Lease = time.Millisecond
	}
	f.mu.Lock()
	f.key, f.token = key, c.Token
	f.mu.Unlock()
	return f.Store.Claim(ctx, key, c)
}

func (f *front) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if f.dead.Load() {
		return false, errDead
	}
	return f.Store.Renew(ctx, key, c)
}

func (f *front) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	if f.dead.Load() {
		return false, errDead
	}
	ok, err := f.Store.Settle(ctx, key, c, receipt, keep)
	if f.silent.Load() {
		return false, errors.New("the answer was lost")
	}
	return ok, err
}

func (f *front) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if f.dead.Load() {
		return false, errDead
	}
	return f.Store.Release(ctx, key, c)
}

// claimed is the last claim that went through.
func (f *front) claimed() (key, token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key, f.token
}
