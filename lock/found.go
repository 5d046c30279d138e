package lock

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
)

// found looks for the receipt that acquire would end with, before anything is
// begun: most of what a replay costs is a run that never runs. ok is false if
// there may be none, and acquire finds out. A store that has to be waited for is
// not asked: its answer would cost a round trip more whenever there is none.
//
// No lease of this process has to be asked first. A record is settled once and
// stays that until its keep is over, so a lease that still has the key in the gate
// is about to end.
func (l *Locker) found(ctx context.Context, key, label string, fingerprint []byte) (receipt []byte, ok bool) {
	if !l.core.prompt || l.cfg.origin != nil || ctx.Err() != nil || l.core.owners.Closed() {
		return nil, false
	}
	var began time.Time
	if l.observed() {
		began = time.Now()
	}
	entry, err := l.core.store.Get(ctx, key)
	if err != nil || entry.State != Settled || !sameRequest(fingerprint, entry.Fingerprint) {
		return nil, false
	}
	if l.observed() {
		l.announce(ctx, Event{
			Kind: EventReplayed, Name: keytext.Name(label), Key: label, Once: true, Attempt: 1,
			Took: time.Since(began), Owner: entry.Owner,
		})
	}
	return entry.Receipt, true
}
