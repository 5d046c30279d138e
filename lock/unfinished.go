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
	before uint64
}

// Unfinished yields the submissions that were begun and not finished, the oldest first: for a job that asks
// the other services about each, and answers it by latch.Finish. Skip those that began a moment ago,
// because their clients may still repeat them. Not listed are submissions whose clients have failed before a
// step, and submissions that have an answer, also a pending one (latch.Later), or a record that says that their
// outcome is unknown.
//
// It reads all entries of the store, and for each step the entry of its submission, before it
// yields the first: call it from a job, not from a request. If the store fails or ctx ends, it yields an error, and
// with it what was found. Over a store that cannot list, the error matches errors.ErrUnsupported. The number
// of submissions found is then [Stats].Unfinished.
func (l *Locker) Unfinished(ctx context.Context) iter.Seq2[Unfinished, error] {
	return func(yield func(Unfinished, error) bool) {
		u := unfinished{l, map[string]*Unfinished{}, map[string]bool{}}
		err := u.find(ctx)
		if err == nil {
			l.core.unfinished.Store(int64(len(u.found)))
		}
		for _, one := range slices.SortedFunc(maps.Values(u.found), func(a, b *Unfinished) int { return a.Since.Compare(b.Since) }) {
			slices.SortStableFunc(one.Steps, compareSteps)
			if !yield(*one, nil) {
				return
			}
		}
		if err != nil {
			yield(Unfinished{}, err)
		}
	}
}

// compareSteps orders the steps that are done, and then the steps that were begun.
func compareSteps(a, b UnfinishedStep) int {
	switch {
	case a.Done && b.Done:
		return cmp.Compare(a.before, b.before)
	case a.Done:
		return -1
	case b.Done:
		return 1
	}
	return cmp.Compare(a.Name, b.Name)
}

// unfinished looks for unfinished submissions.
type unfinished struct {
	locker *Locker
	found  map[string]*Unfinished // by the key of their records
	over   map[string]bool        // records that are running or settled, of the last steps
}

// maxOver bounds the records that are remembered. Stores that list by key have the steps of a record in a row.
const maxOver = 10_000

func (u *unfinished) find(ctx context.Context) error {
	for entry, err := range records(ctx, u.locker.core.store) {
		if err != nil {
			return err
		}
		record, name, isStep := keytext.CutStep(entry.Key)
		if isStep {
			err = u.addStep(ctx, record, name, entry)
		} else if entry.State == Abandoned {
			u.add(entry)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add notes a record whose process has vanished.
func (u *unfinished) add(entry Entry) *Unfinished {
	one := u.of(entry.Key, false)
	one.Token, one.Freed = entry.Token, false
	one.describe(entry.Owner)
	ticket := tickettext.Ticket{Name: entry.Key, Token: entry.Token, Until: time.Now().Add(max(entry.Left, u.locker.cfg.keep))}
	one.Ticket, _ = ticket.Write(tickettext.Answer)
	return one
}

// of returns the submission of a record.
func (u *unfinished) of(record string, freed bool) *Unfinished {
	one := u.found[record]
	if one == nil {
		one = &Unfinished{Key: record, Freed: freed}
		u.found[record] = one
	}
	return one
}

// addStep notes a step of a submission that is not finished.
func (u *unfinished) addStep(ctx context.Context, record, name string, entry Entry) error {
	one, err := u.lookUp(ctx, record)
	if one == nil || err != nil {
		return err
	}
	there, err := u.get(ctx, entry.Key)
	switch {
	case errors.Is(err, errors.ErrUnsupported): // a result that another process has sealed
		there = entry
	case err != nil || there.State == Free:
		return err
	}
	s := UnfinishedStep{Name: name, Key: string(there.Fingerprint)}
	if there.State == Settled {
		s.before, s.Result, err = readStep(there.Receipt)
		s.Done = err == nil
	}
	one.describe(there.Owner)
	one.Steps = append(slices.DeleteFunc(one.Steps, func(other UnfinishedStep) bool { return other.Name == name }), s) // pages may overlap
	return nil
}

func (u *unfinished) get(ctx context.Context, key string) (there Entry, err error) {
	l := u.locker
	err = l.askLogged(ctx, send.Terms{Budget: l.cfg.budget}, sendFunc(func(ctx context.Context) (err error) {
		there, err = l.core.store.Get(ctx, key)
		return err
	}))
	return there, err
}

// lookUp returns the submission of a record, nil if it is running or settled.
func (u *unfinished) lookUp(ctx context.Context, record string) (*Unfinished, error) {
	if one := u.found[record]; one != nil || u.over[record] {
		return one, nil
	}
	there, err := u.get(ctx, record)
	switch {
	case errors.Is(err, errors.ErrUnsupported): // a receipt that another process has sealed
		there.State = Settled
	case err != nil:
		return nil, err
	}
	switch there.State {
	case Abandoned:
		there.Key = record
		return u.add(there), nil
	case Held, Settled:
		if len(u.over) >= maxOver {
			clear(u.over)
		}
		u.over[record] = true
		return nil, nil //nolint:nilnil // it is not unfinished
	case Free:
	}
	one := u.of(record, true)
	ticket := tickettext.Ticket{Name: record, Token: u.locker.core.tokens.Next()} // without Until: it claims the key
	one.Ticket, _ = ticket.Write(tickettext.Answer)
	return one, nil
}

// describe takes the description of a request from the owner of an entry: of the attempt that began last.
func (one *Unfinished) describe(owner string) {
	if about, ok := requestinfo.Read(owner); ok && about.Began.After(one.Since) {
		one.Guard, one.Label, one.Method, one.Path, one.Since = about.Guard, about.Label, about.Method, about.Path, about.Began
	}
}

var errNoInspector = fmt.Errorf("lock: the store is no Inspector, so nothing is listed: %w", errors.ErrUnsupported)

// pageOfRecords is how many entries are read at once.
const pageOfRecords = 1000

// records yields the records of Once in a store, and their steps, without receipts.
func records(ctx context.Context, store Store) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		pager, pages := store.(Pager)
		for cursor := ""; pages; {
			page, next, err := pager.Page(ctx, cursor, pageOfRecords, keytext.IsRecord)
			switch {
			case errors.Is(err, errors.ErrUnsupported): // a wrapper of a store without pages
				pages = false
			case err != nil:
				yield(Entry{}, err)
				return
			}
			for _, entry := range page {
				if !yield(entry, nil) {
					return
				}
			}
			if cursor = next; pages && cursor == "" {
				return
			}
		}
		inspector, lists := store.(Inspector)
		if !lists {
			yield(Entry{}, errNoInspector)
			return
		}
		for entry, err := range inspector.List(ctx) {
			if err != nil || keytext.IsRecord(entry.Key) {
				if !yield(entry, err) {
					return
				}
			}
		}
	}
}
