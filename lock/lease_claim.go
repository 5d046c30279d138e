package lock

import (
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// leaseClaim is what a lease has asked the store for, and was granted. The goroutine that
// acquires it writes it, before the grant; what runs after the grant only reads.
type leaseClaim struct {
	token     string
	call      *send.Call // the last claim; nil before it, and for a store that is prompt
	fence     int64
	observed  *observation // nil if there is neither an observer nor an origin
	grantedAt moment
	mostHold  time.Duration // from then on
	takeover  bool          // the last claim was to replace an abandoned entry
	orphaned  bool          // it was answered, and left an entry without a holder
	fenced    bool
	standing  standing // for others; needs no lock
}

// standing is what can be known of a lease without a lock: whether its claim was
// granted, whether another call waits for that, and whether its work runs though the
// claim was not granted. All are in one word, so that of a grant and of who meets the
// claim at that moment one sees the other.
type standing struct{ bits atomic.Uint32 }

const (
	standsGranted = 1 << iota
	standsMet
	standsBypassed
)

func (s *standing) granted() bool  { return s.bits.Load()&standsGranted != 0 }
func (s *standing) met() bool      { return s.bits.Load()&standsMet != 0 }
func (s *standing) bypassed() bool { return s.bits.Load()&standsBypassed != 0 }

// grant notes the grant, and reports whether another call has met the claim before.
func (s *standing) grant() (met bool) { return s.bits.Or(standsGranted)&standsMet != 0 }

// bypass notes that the work runs unprotected.
func (s *standing) bypass() { s.bits.Or(standsBypassed) }

// meet notes that another call has met it, and reports whether it was granted before.
func (s *standing) meet() (granted bool) { return s.bits.Or(standsMet)&standsGranted != 0 }

// pending reports whether e's claim may still be granted or refused. The shard
// of its key is locked.
func (e *Lease) pending() bool {
	return !e.claim.standing.granted() && !e.bypassed()
}

// claimOf is what e asks the store for.
func (e *Lease) claimOf(lease time.Duration) Claim {
	cfg := &e.locker.cfg
	c := Claim{
		Token:   e.claim.token,
		Attempt: 1,
		Owner:   e.owner(),
		Lease:   lease,
		Fenced:  cfg.fenced,
	}
	if r := e.run; r != nil {
		c.Replaces, c.Attempt, c.Fingerprint, c.Linger, c.Scope = r.replaces, r.attempt, r.print, cfg.keep, r.scope
		if r.owner != "" {
			c.Owner = r.owner
		}
		if r.leavesNothing() {
			c.Linger = 0
		}
	}
	return c
}
