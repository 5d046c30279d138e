package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/internal/tickettext"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// HandOver ends the lease without freeing its key, and returns a ticket with which
// [Locker.Resume] continues it, in this process or another. The key stays held for patience. If
// no process has resumed the ticket by then, the key is free.
//
// A ticket is at most 512 bytes of A to Z, a to z, 0 to 9, "-" and "_", and can be resumed once.
// Its bearer can resume it, so keep it out of logs. To take the key back, because the ticket
// could not be enqueued, resume it and release the lease.
//
// The lease is over as soon as HandOver begins: its context ends with a cause that matches
// [ErrHandedOver], and its Release and Settle do nothing. In [Locker.Do], and behind
// middleware.Lock, that context is the caller's own. So enqueue the ticket with
// context.WithoutCancel.
//
// After an error there is no ticket, and the key is released, in the background if the store
// does not answer. The error matches [ErrUnavailable] if the store did not serve the call within
// the budget, and [ErrLost] if the lease was over before. HandOver does not end with ctx. A
// process that dies in HandOver may leave the key held for patience, although no
// ticket exists.
//
// After these errors nothing has happened, and the lease goes on:
//
//   - errors.ErrUnsupported over a store without receipts, such as a quorum. Over another store,
//     this error means that the store does not know Claim.ReplacesHeld, and the key is released.
//   - ErrUnavailable for work that runs unprotected ([WithFailOpen]).
//   - An error for a key of more than 300 bytes.
//
// HandOver panics if patience is not positive.
func (e *Lease) HandOver(ctx context.Context, patience time.Duration) (ticket string, err error) {
	positive("HandOver: patience", patience)
	switch {
	case e == nil:
		return "", fmt.Errorf("%w: there is none", ErrLost)
	case e.local.Unprotected():
		return "", errBypassed
	case len(e.entry) > tickettext.MaxName:
		return "", fmt.Errorf("lock: HandOver: a key of %d bytes: a ticket has room for %d; hash what is long", len(e.entry), tickettext.MaxName)
	}
	if err := e.locker.core.handsOver(); err != nil {
		return "", err
	}
	e.checkValidity() // a lease that is over by the clock is not handed over, even before its alarm
	lost, first := e.validity.End(false)
	if !first {
		return "", errReleased
	}
	if lost != nil {
		return "", e.endInStore(ctx, leaseEnd{}, lost)
	}
	// First: once the claim of the ticket has landed, the key can be free again after patience,
	// even if no answer says so.
	e.cancel(ErrHandedOver)
	return e.handOver(context.WithoutCancel(ctx), patience)
}

// handsOver returns an error if the store cannot replace a holder.
func (c *core) handsOver() error {
	if c.about.NoReceipts == nil {
		return nil
	}
	return fmt.Errorf("lock: this store cannot replace a holder, so no key is handed over: %w", c.about.NoReceipts)
}

var errKeepsHolder = fmt.Errorf("lock: the store does not know Claim.ReplacesHeld, so no key is handed over: %w", errors.ErrUnsupported)

// errTicketOver ends a hand-over that took longer than its ticket is valid. The holder may also
// have lost its key before: the store's answers do not distinguish the two cases.
var errTicketOver = fmt.Errorf("%w: the claim of the ticket was answered late, and the key is not held by it any more", ErrUnknown)

// handOver claims the key for the token of a ticket, in place of e. The entry of the ticket has no
// holder in any process. If the claim gets no answer, there is no ticket, and the entry is an
// orphan of this process.
func (e *Lease) handOver(ctx context.Context, patience time.Duration) (text string, err error) {
	l := e.locker
	waiting := new(Lease).init(ctx, l, e.entry)
	waiting.claim.token = l.core.tokens.next()
	ticket := tickettext.Ticket{Name: e.entry, Token: waiting.claim.token, Until: time.Now().Add(patience)}
	terms := send.Terms{Budget: l.cfg.budget, Lasting: true}
	// A late send of e's own claim can make e's entry again, long after the ticket was used up. A
	// late send of the ticket's claim would replace this entry, and the ticket could be resumed
	// a second time. So if a send of e's claim may still be late, the ticket's claim is sent only
	// once.
	terms.Single = e.claim.flight.Doubt() != (send.Doubt{})
	began := clock.Now()
	entry, err := l.replace(ctx, waiting, waiting.claimOf(max(patience, time.Millisecond)), e.claim.token, terms)
	switch ours := err == nil && entry.State == Held; {
	case ours && entry.Token == waiting.claim.token:
		text, _ = ticket.Write(tickettext.Lock)
	case ours && entry.Token == e.claim.token:
		err = errKeepsHolder
	case err == nil && !waiting.claim.unanswered:
		err = e.lose(errTaken)
	default:
		if err == nil {
			err = errTicketOver
			l.logFailure(ctx, err)
		}
		l.emitFailed(ctx, e, callHandOver, began.Since(), err)
	}
	if err != nil && !errors.Is(err, ErrLost) {
		if e.end.unanswered = waiting.claim.flight.Doubt() != (send.Doubt{}); e.end.unanswered {
			waiting.addOrphan(EventReaped, patience)
		}
		e.addOrphan(EventReleased, e.lingers())
		e.close(false)
		return "", err
	}
	e.close(true)
	if err == nil {
		l.emit(ctx, e, EventHandedOver, 0, nil)
	}
	return text, err
}

// replace makes the claim c of e, in place of token, which its holder gives away.
func (l *Locker) replace(ctx context.Context, e *Lease, c Claim, token string, terms send.Terms) (Entry, error) {
	c.Replaces, c.ReplacesHeld = token, true
	claim := call{name: callClaim, key: e.entry, claim: c}
	err := l.call(ctx, terms, &claim)
	e.claim.flight, e.claim.unanswered = claim.sent.Flight, claim.sent.Unanswered
	return claim.entry, err
}

var (
	errTicketUsed = &loss{"ticket", "another caller has the key: the ticket was resumed before", ""}
	errTicketLate = &loss{"ticket", "the time of the ticket is over", ""}
	errTicketGone = errors.New("lock: the key of the ticket is free, and the time of the ticket is not over: it was resumed and that lease has ended, " +
		"an operator has freed it, or this Locker has another store or prefix than the one that handed it over")
)

// Resume continues the lease that [Lease.HandOver] gave away with ticket. Of all calls with one
// ticket, in all processes, one is granted. The lease is like one of [Locker.Acquire]: it is
// renewed until Release or Settle is called on it, at most for WithMaxHold from now on, and its
// fence is higher than the fence before. Resume does not queue behind callers that wait for the
// key.
//
// It returns one of these errors:
//
//   - An error that matches [ErrLost] if another caller has the key, because the ticket was resumed
//     before, or if the time of the ticket is over.
//   - An error that matches [ErrUnavailable] if the store did not serve the call within the
//     budget, also with [WithFailOpen]. If it matches [ErrUnknown], this call may have used up
//     the ticket: the key is then released in the background, and another Resume does not get
//     it.
//   - An error that matches [ErrClosed] after Close.
//   - An error that matches the cause of ctx if ctx ends first.
//   - Another error if ticket was cut or altered, or is not a ticket of HandOver, and if the key is
//     free before the time of the ticket is over. Then the ticket was resumed and that lease has
//     ended, an operator has freed the key, or l has another store or prefix than the Locker that
//     handed the key over. The store cannot distinguish them, so let the queue deliver the ticket
//     again until its time is over.
//
// After ErrLost, a worker can only acquire the key itself, and check whether the work was done:
// a ticket gives the right to the key, and does not show the state of the work.
func (l *Locker) Resume(ctx context.Context, ticket string) (*Lease, error) {
	t, err := tickettext.Read(tickettext.Lock, ticket)
	if err != nil {
		return nil, fmt.Errorf("lock: this is no ticket of HandOver: %w", err)
	}
	if err = cmp.Or(validKey(t.Name, false), l.core.handsOver()); err != nil {
		return nil, err
	}
	e := new(Lease).init(ctx, l, t.Name)
	resume := func(began clock.Moment) error { return l.resume(ctx, e, &t, began) }
	if err := l.acquire(ctx, e, acquireTerms{resume: resume}); err != nil {
		return nil, err
	}
	return e, nil
}

// resume claims e's key in place of the ticket. Unlike an acquire it does not ask the local table
// first: only the store knows whether the ticket is good, and callers of this process may be
// waiting for the key.
func (l *Locker) resume(ctx context.Context, e *Lease, t *tickettext.Ticket, began clock.Moment) error {
	entry, err := l.replace(ctx, e, e.newClaim(l.core.tokens.next(), began), t.Token, send.Terms{Budget: l.cfg.budget})
	e.observed.noteFound(entry.Owner)
	switch {
	case err != nil:
		return err
	case entry.State == Held && entry.Token == e.claim.token:
	case !time.Now().Before(t.Until):
		return errTicketLate
	case entry.State == Free:
		return errTicketGone
	default:
		return errTicketUsed
	}
	e.local.Admit(e.claim.token)
	if err = l.granted(ctx, e, entry.Fence, began, EventResumed); err != nil {
		return fmt.Errorf("%w: the ticket is used up: %w", ErrUnknown, err)
	}
	return nil
}
