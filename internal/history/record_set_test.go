package history_test

import (
	"context"

	"github.com/httplatch/httplatch/lock"
)

// setStore is a store that takes the keys of a set at once.
type setStore interface {
	store
	lock.SetClaimer
}

// setWitness writes down what one client does with sets as one operation for each key.
type setWitness struct{ *witness }

func (w setWitness) sets() lock.SetClaimer { return w.store().(setStore) }

// ClaimSet is part of [lock.SetClaimer]. A set that was refused has changed no key, and has
// found one.
func (w setWitness) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (lock.Entry, error) {
	for _, c := range claims {
		w.h.announce(c)
	}
	from := w.h.now()
	inTheWay, err := w.sets().ClaimSet(ctx, keys, claims)
	for i, c := range claims {
		in := call{verb: opClaim, key: keys[i], token: c.Token, lease: c.Lease, linger: c.Linger, inSet: true, from: from}
		out := entry{state: lock.Held, token: c.Token}
		if inTheWay.State != lock.Free {
			out = entryOf(inTheWay)
		}
		if err != nil || inTheWay.State == lock.Free || inTheWay.Key == keys[i] {
			w.write(ctx, in, answer{entry: out}, err)
		}
	}
	w.countUnknown(err)
	w.h.inspect(inTheWay)
	return inTheWay, err
}
