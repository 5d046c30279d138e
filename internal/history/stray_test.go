package history_test

import (
	"context"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/httplatch/httplatch/lock"
)

// What a Locker does not tell its caller, the records of its calls to the store
// do.

type labelKey struct{}

// labelled has all calls to the store that are made on behalf of ctx bear a
// label: the key that a user works with. That of the store is another for Once.
func labelled(ctx context.Context, label string) context.Context {
	return context.WithValue(ctx, labelKey{}, label)
}

// granted is the token that the store has granted to the user's Locker in an
// acquire between from and to.
func (u *user) granted(from, to int64) string {
	u.h.mu.Lock()
	defer u.h.mu.Unlock()
	for _, r := range slices.Backward(u.h.records) {
		if r.client == u.store.client && r.granted() && from <= r.in.from && r.returned <= to {
			return r.in.token
		}
	}
	return ""
}

// unanswered is nil if the store has answered a release or a settle of a lease
// of Once. If it has not, that goes on in the background, and no caller is notified.
func (u *user) unanswered(d deed) error {
	u.h.mu.Lock()
	defer u.h.mu.Unlock()
	for _, r := range slices.Backward(u.h.records) {
		if (r.in.verb == opRelease || r.in.verb == opSettle) && r.in.token == d.token && r.out.known {
			return nil
		}
	}
	return lock.ErrUnavailable
}

// strays are the claims of a user that may land, or have landed, without being
// the grant of one of its acquires. An order of the operations may have each of
// them do so once, when it likes.
func (u *user) strays() []done {
	granted := map[string]int64{}
	for _, d := range u.done {
		if d.act == actTake {
			granted[d.token] = d.to
		}
	}
	var all []done
	for _, r := range u.h.records {
		if r.client != u.store.client || r.in.verb != opClaim || r.out.known && !r.granted() {
			continue
		}
		if to, ok := granted[r.in.token]; ok && r.out.known && r.returned <= to {
			continue // it is that grant
		}
		stray := deed{act: actStray, key: r.label, client: u.store.client, token: r.in.token}
		all = append(all, done{stray, r.in.from, never})
	}
	return all
}

// leases are the operations of users, by key.
func leases(h *history, users []*user) map[string][]porcupine.Operation {
	h.mu.Lock()
	defer h.mu.Unlock()
	end := h.now()
	keys := map[string][]porcupine.Operation{}
	for _, u := range users {
		for _, d := range slices.Concat(u.done, u.strays()) {
			h.counts.add("leases", d.act.String(), 1)
			keys[d.key] = append(keys[d.key], porcupine.Operation{
				ClientId: d.client, Input: d.deed, Call: d.from, Return: min(d.to, end+1),
			})
		}
	}
	for key := range keys {
		keys[key] = append(keys[key], porcupine.Operation{Input: deed{act: actEnd, key: key}, Call: end, Return: end})
	}
	return keys
}
