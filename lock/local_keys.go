package lock

import (
	"bytes"
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// localKeys knows which keys this process has pending or granted, so that a
// duplicate in the same process costs no round trip, and so that no two callers of one
// process claim a key at once: their locker could not know, from the answers alone, the one
// claim from the other. What a caller that has left may still have on its way is an [orphan].
type localKeys struct {
	seed   maphash.Seed
	shards [keyShards]keyShard
}

const keyShards = 64

type keyShard struct {
	mu      sync.Mutex
	holders map[string]*Lease // of the keys that are pending or granted in this process
	alarms  alarms
}

func newLocalKeys() *localKeys {
	k := &localKeys{seed: maphash.MakeSeed()}
	for i := range k.shards {
		s := &k.shards[i]
		s.holders = make(map[string]*Lease)
		s.alarms.init(s.ring)
	}
	return k
}

func (k *localKeys) hash(key string) uint64 { return maphash.String(k.seed, key) }

// shard is that of the keys with this hash.
func (k *localKeys) shard(hash uint64) *keyShard { return &k.shards[hash%keyShards] }

// entrance is what enter found.
type entrance struct {
	open       bool    // the key is the lease's now
	mismatch   bool    // another lease has it, for a different request
	waiter     *waiter // nil if there is no waiting
	confirmEnd func()  // not nil if the holder is done: asks the store to confirm that now
	owner      string  // the holder's, if that is another
}

// refusal is the answer to a caller that does not wait for the holder.
func (f *entrance) refusal() *RefusedError {
	return &RefusedError{Reason: ErrHeld, Entry: Entry{State: Held, Owner: f.owner}}
}

// enter takes e's key for e. If another lease has it, e is queued behind it if patient
// says so, or if it is not certain that the key is held: because that lease's claim is
// pending, or because it is done, and to refuse e would lock the process out by its
// own unanswered call.
func (*localKeys) enter(e *Lease, patient bool) entrance {
	s := e.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := s.holders[e.key]
	if holder == nil {
		s.holders[e.key] = e
		return entrance{open: true}
	}
	if granted := holder.claim.standing.meet(); !granted && holder.pending() {
		w := s.enqueue(e, holder, patient)
		if sl := holder.local.slot; !patient || sl.queue.Len() > maxWaiters {
			sl.ask()
		}
		return entrance{waiter: w, owner: holder.owner()}
	}
	sl := holder.local.slot
	if sl == nil {
		sl = new(slot)
	}
	freeing := sl.confirmEnd != nil && !holder.end.settles
	if !holder.bypassed() && !freeing && !sameRequest(e.fingerprint(), holder.fingerprint()) {
		return entrance{mismatch: true, owner: holder.owner()}
	}
	if !patient && sl.confirmEnd == nil || sl.queue.Len() >= maxWaiters {
		return entrance{confirmEnd: sl.confirmEnd, owner: holder.owner()}
	}
	return entrance{waiter: s.enqueue(e, holder, patient), confirmEnd: sl.confirmEnd, owner: holder.owner()}
}

// sameRequest compares fingerprints. One that is empty equals all.
func sameRequest(a, b []byte) bool {
	return len(a) == 0 || len(b) == 0 || bytes.Equal(a, b)
}

// markEnding says that e's work is over, and that kick asks the store to confirm that.
func (k *localKeys) markEnding(e *Lease, kick func()) {
	s := e.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders[e.key] == e {
		e.needSlot().confirmEnd = kick
	}
}

// leave frees e's key if e has it. It may be called again: at the loss of a
// lease and at its end, whichever comes first. There is no renewal after either.
func (k *localKeys) leave(e *Lease) { k.leaveWith(e, nil) }

// leaveWith is leave after a claim that ended with err, which can be what those
// who have met it would hear as well.
func (k *localKeys) leaveWith(e *Lease, err error) {
	s := e.shard()
	s.mu.Lock()
	s.alarms.Drop((*holder)(e))
	var d *decision
	var answered []*waiter
	if s.holders[e.key] == e {
		if err != nil && e.local.slot != nil {
			d = decisionOf(e, err)
			answered = s.answered(e, d)
		}
		s.pass(e)
	}
	s.mu.Unlock()
	d.wake(answered)
}

// bypass says that e's work runs though its claim was not granted: those who have
// met the claim are refused, and those who come.
func (k *localKeys) bypass(e *Lease) {
	s := e.shard()
	s.mu.Lock()
	e.claim.standing.bypass()
	s.mu.Unlock()
	k.share(e, grantOf(e))
}

// expect has a lease that was granted just now renewed when it is due.
func (s *keyShard) expect(due clock.Moment) {
	if s.alarms.sees(due) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarms.lookBefore(due)
}

// schedule sets the alarm of e.
func (s *keyShard) schedule(e *Lease, due clock.Moment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarms.add(e, due)
}

// ring starts what is due.
func (s *keyShard) ring() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alarms.start(maps.Values(s.holders))
}

// forgetAlarms keeps all alarms from ringing.
func (k *localKeys) forgetAlarms() {
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		s.alarms.forget()
		s.mu.Unlock()
	}
}

// all returns the leases that have a key, granted or not.
func (k *localKeys) all() []*Lease {
	var all []*Lease
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		all = slices.AppendSeq(all, maps.Values(s.holders))
		s.mu.Unlock()
	}
	return all
}
