package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/internal/tickettext"
	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Amend replaces the receipt of a run by its ticket ([Run.Ticket], [Unfinished]). change returns the new
// receipt for the present one. It may be called several times, and its error ends Amend. If the run
// has not ended, Amend waits for the budget, and is then refused with [ErrHeld]. An entry whose process
// has vanished is settled with the receipt that change returns for nil. An error that matches [ErrLost]
// says that the ticket's time is over, or that another run has the key. If ctx belongs to work in a
// transaction of the store, the receipt is committed with the work. Other errors are as for a settle.
func (l *Locker) Amend(ctx context.Context, ticket string, change func(receipt []byte) ([]byte, error)) error {
	t, err := tickettext.Read(tickettext.Answer, ticket)
	switch {
	case err != nil:
		return fmt.Errorf("lock: this is no ticket of Later: %w", err)
	case l.core.about.NoAmends != nil:
		return l.core.about.NoAmends
	case ctx.Err() != nil:
		return fmt.Errorf("lock: not amended: %w", context.Cause(ctx))
	case !l.core.active.Enter():
		return ErrClosed
	}
	defer l.core.active.Leave()
	a := amendment{locker: l, ticket: t, change: change}
	return a.make(ctx)
}

// Ticket returns a ticket for [Locker.Amend]: at most 512 bytes of A to Z, a to z, 0 to 9, "-" and "_".
// Its bearer can replace the receipt, for as long as that is kept. There is none after Settle or
// Hold, and none over a store that is no [Amender]: that error matches errors.ErrUnsupported.
func (r *Run) Ticket() (string, error) {
	e := &r.lease
	switch {
	case r.settled() || r.effects.now().begun:
		return "", errNotAmended
	case e.local.Unprotected():
		return "", errBypassed
	case e.locker.core.about.NoAmends != nil:
		return "", e.locker.core.about.NoAmends
	}
	t := tickettext.Ticket{Name: e.entry, Token: e.claim.token, Until: time.Now().Add(e.locker.cfg.keep)}
	ticket, ok := t.Write(tickettext.Answer)
	if !ok {
		return "", errTicketLength
	}
	return ticket, nil
}

// amendment replaces the receipt of an entry that the token of a ticket has settled.
type amendment struct {
	locker *Locker
	ticket tickettext.Ticket
	change func(receipt []byte) (amended []byte, err error)
	first  []byte // the receipt for an entry without one; nil before the change was asked for it
}

var (
	errRecordOver   = &loss{"record", "the time of the ticket is over, and with it the record", ""}
	errRecordOther  = &loss{"record", "another request has the record: the time of the ticket is over, or its request has failed and was run again", ""}
	errRecordAbsent = errors.New("lock: there is no record of the ticket, and the time of the ticket is not over: its request has failed, " +
		"an operator has freed it, or this Locker has another store or prefix than the guard")
	errTicketLength = errors.New("lock: the record's name is too long for a ticket")
	errNotAmended   = errors.New("lock: the answer has begun to leave, and its record is settled")
	errAmended      = fmt.Errorf("%w: the receipt changed whenever it was to be replaced", ErrUnavailable)
)

// amendPause is the time between two reads of a record whose run has not ended.
const amendPause = 10 * time.Millisecond

// make reads the entry and replaces its receipt. Another amendment may come between the two calls. So the
// second call compares the receipt, and if it differs, make reads the entry again, until the budget is over.
func (a *amendment) make(ctx context.Context) error {
	until := clock.Now().Add(a.locker.cfg.budget)
	for {
		entry, err := a.locker.read(ctx, a.ticket.Name, false)
		switch {
		case errors.Is(err, ErrUnknown): // a read has no effect, so its outcome does not matter
			return fmt.Errorf("%w: the record was not read: %s", ErrUnavailable, err.Error())
		case err != nil:
			return err
		}
		entry.Key = "" // the name of a record is not the key that the caller gave
		inTheWay := errAmended
		claims := a.ticket.Until.Unix() <= 0 // the entry of such a token has no run
		switch {
		case entry.State == Free && claims && !inTransaction(ctx):
			if err := a.answer(ctx, Free); err != nil {
				return err
			}
			continue // a claim that was granted gets its receipt, however long it took
		case entry.State == Free && !claims && time.Now().Before(a.ticket.Until):
			return errRecordAbsent
		case entry.State == Free && !claims:
			return errRecordOver
		case entry.State != Free && entry.Token != a.ticket.Token:
			return errRecordOther
		case entry.State == Held && !claims:
			inTheWay = &RefusedError{Reason: ErrHeld, Entry: entry}
		case entry.State != Settled && inTransaction(ctx): // the settle would not be part of the transaction
			return &RefusedError{Reason: ErrAbandoned, Entry: entry}
		case entry.State != Settled:
			if err := a.answer(ctx, entry.State); err != nil {
				return err
			}
			continue // to read what the settle has left
		default:
			if done, err := a.replace(ctx, &entry); done || err != nil {
				return err
			}
		}
		if until.Until() <= 0 {
			return inTheWay
		}
		timer := time.NewTimer(amendPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return gaveUp(ctx, inTheWay)
		}
	}
}

// inTransaction reports whether ctx belongs to work in a transaction of a store.
func inTransaction(ctx context.Context) bool {
	r := runOf(ctx)
	return r != nil && r.tx != nil
}

// answer claims a free key for the token of the ticket, and settles an entry that has no receipt because the process
// of its run has vanished, or its work has failed. The next read shows the result.
//
// It first asks for the receipt: a claim without one would keep the key. It asks once, because a change may take
// longer than the lease of the claim. The claim has no linger: without an answer, it keeps the key for one lease.
func (a *amendment) answer(ctx context.Context, there State) error {
	l := a.locker
	if a.first == nil {
		to, err := a.change(nil)
		if err != nil {
			return err
		}
		a.first = append([]byte{}, to...)
	}
	c := call{
		name: callSettle, key: a.ticket.Name, claim: Claim{Token: a.ticket.Token},
		receipt: a.first, keep: l.cfg.stepKeep(), // no shorter than a step
	}
	if there == Free {
		c.name, c.claim.Attempt, c.claim.Owner, c.claim.Lease = callClaim, 1, l.core.owner, l.cfg.lease
	}
	return l.call(ctx, send.Terms{Budget: l.cfg.budget}, &c)
}

// replace replaces the receipt of entry, unless answer has left it. done is false if the entry has changed since
// it was read.
func (a *amendment) replace(ctx context.Context, entry *Entry) (done bool, err error) {
	l := a.locker
	if a.first != nil && bytes.Equal(a.first, entry.Receipt) {
		return true, nil
	}
	to, err := a.change(bytes.Clone(entry.Receipt)) // change may write to it
	switch {
	case err != nil:
		return false, err
	case bytes.Equal(to, entry.Receipt):
		return true, nil
	}
	err = l.call(ctx, send.Terms{Budget: l.cfg.budget}, &call{do: func(ctx context.Context) (err error) {
		done, err = l.core.store.(Amender).Amend(ctx, a.ticket.Name, a.ticket.Token, entry.Receipt, to) //nolint:errcheck,forcetypeassert // noAmends says that it is one
		return err
	}})
	return done, err
}
