package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/tickettext"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// Unfinished is a submission that was begun, and is neither answered nor running: the process of its
// last attempt has vanished, or its work has failed after a [Step].
type Unfinished struct {
	Guard  string    // latch.WithName; "" without a guard
	Label  string    // the scope, or the text of latch.WithLabel; without a guard the key given to Once, if it has a step
	Method string    // of the request; "" without a guard
	Path   string    // of the request; "" without a guard
	Since  time.Time // when its last attempt began; zero if that is not known

	// Steps are the steps that are done, in order, and then the steps that were begun.
	Steps []UnfinishedStep

	// Freed says that the key is free: the work has failed, or its process vanished with
	// [WithTransaction]. A transaction of the work was rolled back, and the effects of its steps remain. The
	// next repeat runs, and goes on with the steps. Otherwise the outcome is unknown, and a repeat is refused,
	// or goes on with [WithRerunAbandoned].
	Freed bool

	// Ticket answers the submission (latch.Finish), whether its key is free or not. Its bearer can do so.
	Ticket string

	// Key and Token are those of the entry, for [Inspector]. Token is "" if the key is free.
	Key, Token string
}

// UnfinishedStep is a [Step] of a submission.
type UnfinishedStep struct {
	Name   string
	Done   bool   // else it was begun, and its call may have had an effect, or its result cannot be read here
	Result []byte // if it is done
	Key    string // that the calls of the step had (latch.DeriveKey); "" without one
	place  uint64 // among the steps; the last if it is not done
}

// Unfinished yields the submissions that were begun and not finished, the oldest first: for a job that asks
// the other services about each, and answers it by latch.Finish. Skip those that began a moment ago,
// because their clients may still repeat them. Not listed are submissions whose clients have failed before a
// step, and submissions that have an answer, also a pending one (latch.Later), or a record that says that their
// outcome is unknown.
//
// It reads all entries of the store, and for each step the entry of its submission, before it
// yields the first: call it from a job, not from a request. If the store fails or ctx ends, it yields an error, and
// with it what was found. Over a store that is no [Inspector], or has no pages, the error matches errors.ErrUnsupported. The number
// of submissions found is then [Stats].Unfinished.
func (l *Locker) Unfinished(ctx context.Context) iter.Seq2[Unfinished, error] {
	return func(yield func(Unfinished, error) bool) {
		u := unfinished{l, map[string]*Unfinished{}}
		err := u.find(ctx)
		if err == nil {
			l.core.unfinished.Store(int64(len(u.found)))
		}
		for _, one := range slices.SortedFunc(maps.Values(u.found), func(a, b *Unfinished) int { return a.Since.Compare(b.Since) }) {
			slices.SortFunc(one.Steps, func(a, b UnfinishedStep) int {
				return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.Name, b.Name))
			})
			if !yield(*one, nil) {
				return
			}
		}
		if err != nil {
			yield(Unfinished{}, err)
		}
	}
}

// unfinished looks for unfinished submissions.
type unfinished struct {
	locker *Locker
	found  map[string]*Unfinished // by the key of their records
}

var errNoPages = fmt.Errorf("lock: the store is no Inspector, so nothing is listed: %w", errors.ErrUnsupported)

// pageOfRecords is how many entries are read at once.
const pageOfRecords = 1000

func (u *unfinished) find(ctx context.Context) error {
	inspector, ok := u.locker.core.store.(Inspector)
	if !ok {
		return errNoPages
	}
	for cursor := ""; ; {
		page, next, err := inspector.Page(ctx, cursor, pageOfRecords, keytext.IsRecord)
		if err != nil {
			return err
		}
		for i := range page {
			record, step, isStep := keytext.CutStep(page[i].Key)
			switch {
			case isStep:
				err = u.addStep(ctx, record, step, page[i])
			case page[i].State == Abandoned:
				u.add(record, page[i])
			}
			if err != nil {
				return err
			}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// add notes the submission of a record that is abandoned or free. The token of the ticket of a free one claims the key.
func (u *unfinished) add(record string, entry Entry) *Unfinished {
	one := u.found[record]
	if one == nil {
		one = &Unfinished{Key: record}
		u.found[record] = one
	}
	one.Token, one.Freed = entry.Token, entry.State == Free
	ticket := tickettext.Ticket{Name: record, Token: entry.Token, Until: time.Now().Add(max(entry.Left, u.locker.cfg.keep))}
	if one.Freed {
		ticket.Token, ticket.Until = u.locker.core.tokens.Next(), time.Time{}
	}
	one.Ticket, _ = ticket.Write(tickettext.Answer)
	one.describe(entry.Owner)
	return one
}

// addStep notes a step, unless its submission is running or settled. It reads the step after the record: a step that
// is there has not ended with its record.
func (u *unfinished) addStep(ctx context.Context, record, name string, entry Entry) (err error) {
	one, of := u.found[record], Entry{}
	if one == nil {
		if of, err = u.get(ctx, record); err != nil || of.State == Held || of.State == Settled {
			return err
		}
	}
	there, err := u.get(ctx, entry.Key)
	if err != nil || there.State == Free {
		return err
	}
	if one == nil {
		one = u.add(record, of)
	}
	s := UnfinishedStep{Name: name, Key: string(entry.Fingerprint), place: math.MaxUint64}
	if there.State == Settled {
		if place, result, err := readStep(there.Receipt); err == nil {
			s.Done, s.place, s.Result = true, place, result
		}
	}
	one.describe(entry.Owner)
	one.Steps = append(slices.DeleteFunc(one.Steps, func(other UnfinishedStep) bool { return other.Name == name }), s) // pages may overlap
	return nil
}

// get reads an entry. A receipt that another process has sealed, and that cannot be read here, is empty.
func (u *unfinished) get(ctx context.Context, key string) (there Entry, err error) {
	l := u.locker
	there, err = l.read(ctx, send.Terms{Budget: l.cfg.budget}, key)
	if errors.Is(err, errors.ErrUnsupported) {
		return Entry{State: Settled}, nil
	}
	return there, err
}

// describe takes the description of a request from the owner of an entry: of the attempt that began last.
func (one *Unfinished) describe(owner string) {
	if about, ok := requestinfo.Read(owner); ok && about.Began.After(one.Since) {
		one.Guard, one.Label, one.Method, one.Path, one.Since = about.Guard, about.Label, about.Method, about.Path, about.Began
	}
}
