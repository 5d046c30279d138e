package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// Claim takes key for c.Token if it is free. Without c.Replaces and c.Fenced,
// it is one plain command, which also finds out whether an earlier claim
// of the token was applied. An entry with a receipt, or with a lease that may be
// over, is read a second time, together with its time left.
//
// If a claim without Fenced takes over from a claim with Fenced, or follows its release within a
// minute, the new entry keeps the key's last fence. Get and List show it.
func (s *Store) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.claim(ctx, key, c)
	if !c.Fenced && e.Token == c.Token {
		e.Fence = 0 // the fence of an earlier holder
	}
	return e, err
}

func (s *Store) claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if len(c.Token) == 0 || len(c.Token) > 255 {
		return lock.Entry{}, failure.NotApplied("argument", fmt.Errorf("a token of %d bytes, not 1 to 255", len(c.Token)))
	}
	name, kept := entry.Name(s.prefix, key)
	v := entry.New(c, kept)
	switch {
	case c.Fenced:
		return s.claimFenced(ctx, name, &v, c)
	case c.Replaces != "", s.scripted.Load():
		r, err := s.claimScript(ctx, name, &v, c, "")
		return r.entry, err
	default:
		return s.claimPlain(ctx, name, &v, c)
	}
}

// claimPlain claims by SET with NX and GET. The server answers nil if it has set the value, and
// otherwise the current value, which an earlier send of this token may have set.
func (s *Store) claimPlain(ctx context.Context, name string, v *entry.Value, c lock.Claim) (lock.Entry, error) {
	cmd := wire.NewCommand(name)
	cmd.Load, cmd.Yields = v.AppendTo(cmd.Room()), true
	answer, err := s.nodes.do(ctx, cmd.With("set", name, &cmd.Load, "nx", "get", "px", keepFor(c)))
	switch {
	case err == nil && answer == nil:
		return granted(c, 0), nil
	case err != nil && failure.IsSyntaxError(err):
		s.scripted.Store(true)
		r, err := s.claimScript(ctx, name, v, c, "")
		return r.entry, err
	case err != nil:
		return s.readRefused(ctx, name, err)
	}
	raw, ok := answer.(string)
	if !ok {
		return lock.Entry{}, failure.BadAnswer(answer)
	}
	old, err := entry.Decode(raw)
	switch {
	case err != nil:
		return lock.Entry{}, failure.NotApplied("value", err)
	case old.State == entry.Stub:
		r, err := s.claimScript(ctx, name, v, c, "")
		return r.entry, err
	case old.State == entry.Settled && entry.IsRecord(s.prefix, name):
		// A replay needs the receipt and not how long it will be kept.
		return old.Entry(-1), nil
	case old.State == entry.Settled, old.Linger > 0:
		return s.read(ctx, name)
	default:
		return old.Entry(-1), nil
	}
}

// readRefused returns the current entry although the server refused to execute the
// claim: a server without memory, disk or replicas can still replay a receipt
// and return the holder of a key.
func (s *Store) readRefused(ctx context.Context, name string, refusal error) (lock.Entry, error) {
	switch failure.ClassOf(refusal) {
	case "OOM", "MISCONF", "NOREPLICAS":
	default:
		return lock.Entry{}, refusal
	}
	e, err := s.read(ctx, name)
	if err != nil || e.State == lock.Free {
		return lock.Entry{}, refusal
	}
	return e, nil
}

// The first field of the answer of claim.lua.
const (
	claimLate    int64 = iota - 1 // it came after notAfter
	claimRefused                  // the entry is left as it is
	claimTaken                    // the entry belongs to the claim
	claimNone                     // there is no entry to replace
)

// claimed is the answer of the claim script.
type claimed struct {
	entry lock.Entry
	now   time.Duration // by the server's clock, if the claim is fenced
	late  bool          // refused because it came after notAfter
}

// claimScript claims in Lua. notAfter is "" for a claim without a fence.
func (s *Store) claimScript(ctx context.Context, name string, v *entry.Value, c lock.Claim, notAfter string) (claimed, error) {
	cmd := wire.NewCommand(name)
	cmd.Load, cmd.Yields = v.AppendHead(cmd.Room()), true
	args := []any{v.AppendTail(nil), keepFor(c), c.Replaces, notAfter}
	if c.ReplacesHeld {
		args = append(args, "held")
	}
	answer, err := s.eval(ctx, claimScript, cmd, args...)
	if err != nil {
		return claimed{}, err
	}
	fields, ok := answer.([]any)
	if !ok || len(fields) < 2 {
		return claimed{}, failure.BadAnswer(answer)
	}
	now, ok := fields[1].(int64)
	if !ok {
		return claimed{}, failure.BadAnswer(answer)
	}
	r := claimed{now: time.Duration(now) * time.Microsecond}
	switch {
	case fields[0] == claimLate:
		r.late = true
	case fields[0] == claimNone: // free, and to be claimed without Replaces
	case fields[0] == claimTaken && len(fields) == 3:
		fence, ok := fields[2].(int64)
		if !ok {
			return claimed{}, failure.BadAnswer(answer)
		}
		r.entry = granted(c, fence)
	case fields[0] == claimRefused && len(fields) == 5:
		there, left, err := valueOf(fields[3:])
		if err != nil {
			return claimed{}, err
		}
		r.entry = there.Entry(left)
	default:
		return claimed{}, failure.BadAnswer(answer)
	}
	return r, nil
}

// granted returns the entry that a claim has just made.
func granted(c lock.Claim, fence int64) lock.Entry {
	return lock.Entry{
		State:       lock.Held,
		Token:       c.Token,
		Attempt:     c.Attempt,
		Fingerprint: slices.Clone(c.Fingerprint),
		Owner:       c.Owner,
		Fence:       fence,
		Left:        c.Lease,
	}
}

// keepFor returns for how many ms Redis keeps the entry of c.
func keepFor(c lock.Claim) int64 {
	return max(entry.Milliseconds(c.Lease), 1) + entry.Milliseconds(c.Linger)
}

var errLate = errors.New("refused as too late")
