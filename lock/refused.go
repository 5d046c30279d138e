package lock

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
)

// refused says at once what acquire would: that another lease of this process
// has the key. It returns nil if that may not be so, and acquire finds out.
// Nothing has begun when it returns, so there is nothing to undo, and nothing
// that Close would have to wait for.
func (l *Locker) refused(ctx context.Context, hash uint64, key, label string, fingerprint []byte) *RefusedError {
	if l.cfg.wait > 0 || !l.mayAnswer(ctx) {
		return nil
	}
	var began time.Time
	if l.observed() { // or else a look at the clock would be a third of it all
		began = time.Now()
	}
	holder := l.core.gate.shard(hash).refused(key, fingerprint)
	if holder == nil {
		return nil
	}
	err := &RefusedError{Reason: ErrHeld, Entry: Entry{State: Held, Owner: holder.owner()}}
	if l.observed() {
		l.announce(ctx, Event{
			Kind: EventRefused, Name: keytext.Name(label), Key: label, Once: key != label, Attempt: 1,
			Took: time.Since(began), Owner: err.Entry.Owner, Err: err,
		})
	}
	return err
}

// mayAnswer says that nothing comes before what is known of a key. An origin
// does: it is asked for once per acquire, though only a claim has a use for it.
func (l *Locker) mayAnswer(ctx context.Context) bool {
	return l.cfg.origin == nil && ctx.Err() == nil && !l.core.owners.Closed()
}

// refused finds the lease because of which enter would refuse key to somebody
// who does not wait. It may find none, and then enter decides.
//
// It takes no lock, so that the duplicates of one key, which are refused as fast
// as they come, do not stand in line for that: who is refused once is noted in
// busy, and those that follow look there. What is noted there has its key, by a
// grant or to work without the store, and lacks no word of the store: whatever
// changes that, under the shard's lock, takes the note away before. So the moment in
// which the note is read is one in which enter would have refused, too.
func (s *gateShard) refused(key string, fingerprint []byte) *Lease {
	holder := s.busy.Load()
	if holder == nil || holder.key != key || holder.standing.granted() && !sameRequest(fingerprint, holder.fingerprint()) {
		return nil
	}
	return holder
}

// clear takes away the note that somebody was refused for e.
func (s *gateShard) clear(e *Lease) {
	if s.busy.Load() == e {
		s.busy.Store(nil)
	}
}
