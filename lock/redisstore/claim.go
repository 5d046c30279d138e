package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
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
func (s *Store) Claim(ctx context.Context, key string, c lock.Claim) (e lock.Entry, err error) {
	if err := checkToken(&c); err != nil {
		return lock.Entry{}, err
	}
	name, kept := entry.Name(s.prefix, key)
	var room [128]byte
	value := entry.Append(room[:0], &c, kept)
	switch {
	case c.Fenced:
		return s.claimFenced(ctx, name, value, &c)
	case c.Replaces != "", s.scripted.Load():
		e, err = s.claimUnfenced(ctx, name, value, &c)
	default:
		e, err = s.claimPlain(ctx, name, value, &c)
	}
	if e.Token == c.Token {
		e.Fence = 0 // the fence of an earlier holder
	}
	return e, err
}

// checkToken returns an error for a token that an entry cannot keep.
func checkToken(c *lock.Claim) error {
	if len(c.Token) == 0 || len(c.Token) > math.MaxUint8 {
		return failure.NotApplied("argument", fmt.Errorf("a token of %d bytes, not 1 to 255", len(c.Token)))
	}
	return nil
}

// claimPlain claims by SET with NX and GET. The server answers nil if it has set the value, and
// otherwise the current value, which an earlier send of this token may have set.
func (s *Store) claimPlain(ctx context.Context, name string, value []byte, c *lock.Claim) (lock.Entry, error) {
	cmd := wire.NewCommand(name, "set", name, value, "nx", "get", "px", keepFor(c))
	cmd.Yields = true
	answer, err := s.nodes.do(ctx, cmd)
	cmd.Free()
	switch {
	case err == nil && answer == nil:
		return granted(c, 0), nil
	case err != nil && failure.IsSyntaxError(err):
		s.scripted.Store(true)
		return s.claimUnfenced(ctx, name, value, c)
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
		return s.claimUnfenced(ctx, name, value, c)
	case old.State == entry.Settled && entry.IsRecord(s.prefix, name):
		// A replay needs the receipt and not how long it will be kept.
	case old.State == entry.Settled, old.Linger > 0:
		return s.read(ctx, name)
	}
	return old.Entry(-1), nil
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

// claimUnfenced claims in Lua, without a fence.
func (s *Store) claimUnfenced(ctx context.Context, name string, value []byte, c *lock.Claim) (lock.Entry, error) {
	e, _, err := s.claimScript(ctx, name, value, c, "")
	return e, err
}

// claimScript claims in Lua. now is the time by the server's clock, if notAfter is not "". A claim that
// comes after it fails with the class late.
func (s *Store) claimScript(ctx context.Context, name string, value []byte, c *lock.Claim, notAfter string) (e lock.Entry, now time.Duration, err error) {
	args := []any{value, keepFor(c), c.Replaces, notAfter, "held"}
	if !c.ReplacesHeld {
		args = args[:4]
	}
	answer, err := s.eval(ctx, &claimScript, 1, name, args...)
	if err != nil {
		return lock.Entry{}, 0, err
	}
	fields, _ := answer.([]any)
	if len(fields) < 2 {
		return lock.Entry{}, 0, failure.BadAnswer(answer)
	}
	micros, ok := fields[1].(int64)
	now = time.Duration(micros) * time.Microsecond
	switch {
	case ok && fields[0] == claimLate:
		return lock.Entry{}, now, failure.NotApplied("late", errors.New("refused as too late"))
	case ok && fields[0] == claimNone: // free, and to be claimed without Replaces
		return lock.Entry{}, now, nil
	case ok && fields[0] == claimTaken && len(fields) == 3:
		if fence, ok := fields[2].(int64); ok {
			return granted(c, fence), now, nil
		}
	case ok && fields[0] == claimRefused && len(fields) == 5:
		e, err = entryOf(fields[3:])
		return e, now, err
	}
	return lock.Entry{}, 0, failure.BadAnswer(answer)
}

// claimFenced claims with a fence. The server does not execute the claim after ctx has ended:
// the command carries the time, by the server's clock, after which it is refused.
//
// The clock of a server is unknown before its first answer. So the first claim carries a time
// that is already over. The server refuses it, unless there is an entry to report, and the
// refusal contains the server's time.
func (s *Store) claimFenced(ctx context.Context, name string, value []byte, c *lock.Claim) (e lock.Entry, err error) {
	server, err := s.nodes.route(ctx, name)
	if err != nil {
		return lock.Entry{}, err
	}
	clock := server.clock
	deadline, guarded := ctx.Deadline()
	// Two tries: after a failover another server may refuse the claim, and its refusal
	// contains the time for the second try.
	for range 2 {
		notAfter := int64(0)
		if guarded {
			notAfter = clock.At(deadline)
		}
		sent := time.Now()
		var now time.Duration
		if e, now, err = s.claimScript(ctx, name, value, c, strconv.FormatInt(notAfter, 10)); err != nil && failure.ClassOf(err) != "late" {
			return lock.Entry{}, err
		}
		if clock.Heard(sent, time.Now(), now); err == nil {
			return e, nil
		}
	}
	return lock.Entry{}, err
}

// granted returns the entry that a claim has just made.
func granted(c *lock.Claim, fence int64) lock.Entry {
	return lock.Entry{State: lock.Held, Token: c.Token, Attempt: c.Attempt, Fingerprint: slices.Clone(c.Fingerprint), Owner: c.Owner, Fence: fence, Left: c.Lease}
}

// keepFor returns for how many ms Redis keeps the entry of c.
func keepFor(c *lock.Claim) int64 {
	return max(entry.Milliseconds(c.Lease), 1) + entry.Milliseconds(c.Linger)
}

var errInOrder = fmt.Errorf("redisstore: the keys of a set may be on several servers, and are claimed one after the other: %w", errors.ErrUnsupported)

// ClaimSet is part of [lock.SetClaimer]: one script on all entries. On a Cluster, and under
// [WithoutPluralClaims], it returns errors.ErrUnsupported, and sends nothing. A server or a proxy that
// refuses the script because the entries are in several slots (CROSSSLOT) is not asked again.
func (s *Store) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (inTheWay lock.Entry, err error) {
	if s.nodes.cluster != nil || s.inOrder.Load() {
		return lock.Entry{}, errInOrder
	}
	names, values := make([]any, len(keys)), []any{keepFor(&claims[0])}
	for i := range claims {
		if err := checkToken(&claims[i]); err != nil {
			return lock.Entry{}, err
		}
		name, kept := entry.Name(s.prefix, keys[i])
		names[i], values = name, append(values, entry.Append(nil, &claims[i], kept))
	}
	first, _ := names[0].(string)
	answer, err := s.eval(ctx, &claimSetScript, int64(len(names)), first, append(names[1:], values...)...)
	if failure.ClassOf(err) == "CROSSSLOT" {
		s.inOrder.Store(true)
		if errors.Is(err, lock.ErrNotApplied) {
			return lock.Entry{}, errInOrder
		}
	}
	if err != nil {
		return lock.Entry{}, err
	}
	switch fields, _ := answer.([]any); {
	case len(fields) == 1 && fields[0] == int64(1):
		return lock.Entry{}, nil
	case len(fields) == 4 && fields[0] == int64(0):
		if at, ok := fields[1].(int64); ok && at >= 1 && at <= int64(len(keys)) {
			e, err := entryOf(fields[2:])
			e.Key = keys[at-1]
			return e, err
		}
	}
	return lock.Entry{}, failure.BadAnswer(answer)
}
