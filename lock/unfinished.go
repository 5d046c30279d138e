package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/tickettext"
)

// Unfinished is a submission that was begun, and is neither answered nor running: the process of its
// last attempt has vanished, or its work has failed after a [Step].
type Unfinished struct {
	Guard        string           // latch.WithName; "" without a guard
	Method, Path string           // of the request; "" without a guard
	Label        string           // the scope, or the text of latch.WithLabel; without a guard the key given to Once, if it has a step
	Since        time.Time        // when its last attempt began; zero if that is not known
	Steps        []UnfinishedStep // done, in order, and then the steps that were only begun

	// Freed says that the key is free: the work has failed, or its process vanished with [WithTransaction]. A
	// transaction of the work was rolled back, and the effects of its steps remain. The next repeat runs, and goes
	// on with the steps. Otherwise the outcome is unknown, and a repeat is refused, or goes on with [WithRerunAbandoned].
	Freed      bool
	Ticket     string // answers the submission (latch.Finish), whether its key is free or not. Its bearer can do so.
	Key, Token string // of the entry, for [Inspector]. Token is "" if the key is free.
}

// UnfinishedStep is a [Step] of a submission.
type UnfinishedStep struct {
	Name   string
	Done   bool   // else it was begun, and its call may have had an effect, or its result cannot be read here
	Result []byte // if it is done
	Key    string // that the calls of the step had (latch.DeriveKey); "" without one
	place  uint64 // among the steps; the last if it is not done
}

// Unfinished yields the submissions that were begun and not finished, the oldest first: for a job that asks the
// other services about each, and answers it by latch.Finish. Skip those that began a moment ago, because their
// clients may still repeat them. Not listed are submissions that have failed before a step, and those that have
// an answer, also a pending one (latch.Later), or a record that says that their outcome is unknown.
//
// Before it yields the first, it reads all entries of the store, and for each step the entry of its submission:
// call it from a job, not from a request. If the store fails or ctx ends, it yields what was found, and then an
// error, which matches errors.ErrUnsupported over a store that is no [Inspector] or has no pages. Otherwise
// [Stats].Unfinished is the number of submissions found.
func (l *Locker) Unfinished(ctx context.Context) iter.Seq2[Unfinished, error] {
	return func(yield func(Unfinished, error) bool) {
		u := unfinished{l, map[string]*Unfinished{}}
		inspector, ok := l.core.store.(Inspector)
		err := errNoInspector
		for cursor := ""; ok; ok = err == nil && cursor != "" { // in pages
			var page []Entry
			page, cursor, err = inspector.Page(ctx, cursor, 1000, keytext.IsRecord)
			for i := range page {
				if failed := u.look(ctx, page[i]); failed != nil {
					err = failed
					break
				}
			}
		}
		if err == nil {
			l.core.unfinished.Store(int64(len(u.found)))
		}
		for _, one := range slices.SortedFunc(maps.Values(u.found), func(a, b *Unfinished) int { return a.Since.Compare(b.Since) }) {
			slices.SortStableFunc(one.Steps, func(a, b UnfinishedStep) int { return cmp.Compare(a.place, b.place) })
			if !yield(*one, nil) {
				return
			}
		}
		if err != nil {
			yield(Unfinished{}, err)
		}
	}
}

var errNoInspector = fmt.Errorf("lock: the store is no Inspector, so nothing is listed: %w", errors.ErrUnsupported)

type unfinished struct {
	locker *Locker
	found  map[string]*Unfinished // by the key of their records
}

// look notes the submission of an entry that is abandoned, or the step of a submission that is neither running nor
// settled. It reads the step after the record: a step that is there has not ended with its record.
func (u *unfinished) look(ctx context.Context, entry Entry) error {
	record, name, isStep := keytext.CutStep(entry.Key)
	if !isStep {
		if entry.State == Abandoned {
			u.add(record, entry, entry.Owner)
		}
		return nil
	}
	of, err := u.get(ctx, record)
	if err != nil || of.State == Held || of.State == Settled {
		return err
	}
	there, err := u.get(ctx, entry.Key)
	if err != nil || there.State == Free {
		return err
	}
	s := UnfinishedStep{Name: name, Key: string(entry.Fingerprint)}
	s.place, s.Result, err = readStep(there.Receipt)
	s.Done = err == nil
	one := u.add(record, of, of.Owner, entry.Owner)
	one.Steps = append(slices.DeleteFunc(one.Steps, func(other UnfinishedStep) bool { return other.Name == name }), s) // pages may overlap
	return nil
}

// add notes the submission of a record that is abandoned or free. If the key is free, the ticket has a new
// token, with which [Locker.Amend] claims it. The request is that of the attempt that began last.
func (u *unfinished) add(record string, entry Entry, owners ...string) *Unfinished {
	one := cmp.Or(u.found[record], &Unfinished{Key: record})
	u.found[record] = one
	one.Token, one.Freed = entry.Token, entry.State == Free
	ticket := tickettext.Ticket{Name: record, Token: entry.Token, Until: time.Now().Add(max(entry.Left, u.locker.cfg.keep))}
	if one.Freed {
		ticket.Token, ticket.Until = u.locker.core.tokens.next(), time.Time{}
	}
	one.Ticket, _ = ticket.Write(tickettext.Answer)
	for _, owner := range owners {
		if r, ok := requestinfo.Read(owner); ok && r.Began.After(one.Since) {
			one.Guard, one.Label, one.Method, one.Path, one.Since = r.Guard, r.Label, r.Method, r.Path, r.Began
		}
	}
	return one
}

// get reads an entry. A receipt that another process has sealed, and that cannot be read here, is empty.
func (u *unfinished) get(ctx context.Context, key string) (Entry, error) {
	there, err := u.locker.read(ctx, key, false)
	if errors.Is(err, errors.ErrUnsupported) {
		return Entry{State: Settled}, nil
	}
	return there, err
}
