package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Amend implements oncecall.Locker.
func (m *forMiddleware) Amend(ctx context.Context, name, token string, change func(receipt []byte) ([]byte, error)) error {
	l := (*Locker)(m)
	switch {
	case l.core.noAmends != nil:
		return l.core.noAmends
	case ctx.Err() != nil:
		return fmt.Errorf("lock: not amended: %w", context.Cause(ctx))
	case !l.core.owners.Enter():
		return ErrClosed
	}
	defer l.core.owners.Leave()
	a := amendment{l, name, token, change}
	return a.run(ctx)
}

// Record implements oncecall.Run.
func (r *run) Record() (name, token string, err error) {
	e := &r.lease
	return string(e.entry), e.claim.token, e.locker.core.noAmends
}

// amendment replaces the receipt of an entry that token has settled.
type amendment struct {
	locker      *Locker
	name, token string
	change      func(receipt []byte) (amended []byte, err error)
}

var (
	errRecordGone = &loss{"record", "the record of the ticket is gone: its keep is over, its request has failed, or an operator removed it", ""}
	errAmended    = fmt.Errorf("%w: the receipt changed whenever it was to be replaced", ErrUnavailable)
)

// amendPause is the time between two reads of a record whose run has not ended.
const amendPause = 10 * time.Millisecond

// run reads the entry and replaces its receipt. It tries until the budget is over. Another
// amendment may come between the two calls. So the second call compares the receipt, and if it
// differs, run reads the entry again.
func (a *amendment) run(ctx context.Context) error {
	until := clock.Now().Add(a.locker.cfg.budget)
	for {
		entry, err := a.read(ctx)
		if err != nil {
			return err
		}
		inTheWay := errAmended
		switch {
		case entry.State == Free, entry.Token != a.token:
			return errRecordGone
		case entry.State == Held:
			entry.Key = "" // the name of a record is not the key that the caller gave
			inTheWay = &RefusedError{Reason: ErrHeld, Entry: entry}
		case entry.State == Abandoned && inTransaction(ctx): // the settle would not be part of the transaction
			entry.Key = ""
			return &RefusedError{Reason: ErrAbandoned, Entry: entry}
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

func (a *amendment) read(ctx context.Context) (entry Entry, err error) {
	l := a.locker
	err = l.askLogged(ctx, send.Terms{Budget: l.cfg.budget}, sendFunc(func(ctx context.Context) (err error) {
		entry, err = l.core.store.Get(ctx, a.name)
		return err
	}))
	if errors.Is(err, ErrUnknown) { // a read has no effect, so its outcome does not matter
		err = fmt.Errorf("%w: the record was not read: %s", ErrUnavailable, err.Error())
	}
	return entry, err
}

// replace replaces the receipt of entry. An abandoned entry has none, because the process of the
// run has vanished: it gets the receipt as the outcome of that run. done is false if the entry
// has changed since it was read.
func (a *amendment) replace(ctx context.Context, entry *Entry) (done bool, err error) {
	l := a.locker
	to, err := a.change(entry.Receipt)
	switch {
	case err != nil:
		return false, err
	case entry.State == Settled && bytes.Equal(to, entry.Receipt):
		return true, nil
	}
	err = l.askLogged(ctx, send.Terms{Budget: l.cfg.budget}, sendFunc(func(ctx context.Context) (err error) {
		defer send.Recover(&err)
		if entry.State == Abandoned {
			_, err = l.core.store.Settle(ctx, a.name, Claim{Token: a.token}, to, l.cfg.keep)
			return err // not done: the next read finds the receipt that is there
		}
		done, err = l.core.store.(Amender).Amend(ctx, a.name, a.token, entry.Receipt, to) //nolint:errcheck,forcetypeassert // noAmends says that it is one
		return err
	}))
	return done, err
}
