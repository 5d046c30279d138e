package semantics_test

import (
	"errors"
	"fmt"

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
func vanishes() step {
	return then("its process dies", func(w *world) error {
		w.front.dead.Store(true)
		return nil
	})
}

// down cuts the first process off from the store.
func down() step {
	return then("the store goes down", func(w *world) error {
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
