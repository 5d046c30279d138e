package rowstore

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// Row is one entry in a table. Its times are microseconds since one moment, by the clock of the
// database. A nil Row is a free key.
type Row struct {
	Key, Token         []byte
	Attempt            int64
	Fingerprint, Owner []byte
	Fence              int64
	Settled            bool
	Receipt            []byte
	Ends               int64 // when the lease or the receipt ends
	Over               int64 // when the entry ends, after its linger
	At                 int64 // when the row was read
}

// RowOf returns the row of a claim.
func RowOf(key string, c *lock.Claim, now int64) *Row {
	ends := Plus(now, Micros(c.Lease))
	return &Row{
		Key: []byte(key), Token: []byte(c.Token), Attempt: int64(c.Attempt), Fingerprint: c.Fingerprint, Owner: []byte(c.Owner),
		Ends: ends, Over: Plus(ends, Micros(c.Linger)), At: now,
	}
}

// Transactional reports whether a claim is for a run in a transaction: a record without a linger
// after its lease.
func Transactional(key string, linger time.Duration) bool {
	return keytext.IsRecord(key) && linger == 0
}

// MaxClaims bounds the tries of a claim whose key is taken whenever it is claimed, and free whenever
// it is read.
const MaxClaims = 8

// Claim calls try until c is granted, or the row that try has read after its claim does not yield to
// c. It returns the error of try, whose store has a package of this name.
func Claim(store string, c *lock.Claim, try func() (granted bool, fence int64, r *Row, err error)) (lock.Entry, error) {
	for range MaxClaims {
		granted, fence, r, err := try()
		switch {
		case err != nil:
			return lock.Entry{}, err
		case granted:
			return lock.Entry{
				State: lock.Held, Token: c.Token, Attempt: c.Attempt, Fingerprint: bytes.Clone(c.Fingerprint), Owner: c.Owner, Fence: fence, Left: c.Lease,
			}, nil
		case !r.YieldsTo(c):
			return r.Entry(), nil
		}
	}
	return lock.Entry{}, Unsettled(store)
}

// Unsettled returns the error of a claim after MaxClaims, of a store by the name of its package.
func Unsettled(store string) error {
	return fmt.Errorf("%w: %s: the key was taken whenever it was claimed, and free whenever it was read: try again", lock.ErrNotApplied, store)
}

// Scan reads the row, in the order of its fields, and the columns after it. It returns [sql.ErrNoRows] as
// it is.
func (r *Row) Scan(from interface{ Scan(into ...any) error }, after ...any) error {
	into := []any{&r.Key, &r.Token, &r.Attempt, &r.Fingerprint, &r.Owner, &r.Fence, &r.Settled, &r.Receipt, &r.Ends, &r.Over}
	err := from.Scan(append(into, after...)...)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("reading a row: %w", err)
	}
	return err
}

// Values returns the fields in their order.
func (r *Row) Values() []any {
	return []any{r.Key, r.Token, r.Attempt, r.Fingerprint, r.Owner, r.Fence, r.Settled, r.Receipt, r.Ends, r.Over}
}

// Settle turns the row into a receipt.
func (r *Row) Settle(receipt []byte, keep time.Duration) {
	r.Settled, r.Receipt, r.Ends = true, receipt, Plus(r.At, Micros(keep))
	r.Over = r.Ends
}

// Of reports whether the row is an entry of token.
func (r *Row) Of(token string) bool {
	return r.State() != lock.Free && string(r.Token) == token
}

// YieldsTo reports whether c takes the key.
func (r *Row) YieldsTo(c *lock.Claim) bool {
	state := r.State()
	if c.Replaces == "" {
		return state == lock.Free
	}
	return (state == lock.Abandoned || state == lock.Held && c.ReplacesHeld) && string(r.Token) == c.Replaces
}

// State returns the state of the entry.
func (r *Row) State() lock.State {
	switch {
	case r == nil || r.At >= r.Over:
		return lock.Free
	case r.Settled:
		return lock.Settled
	case r.At < r.Ends:
		return lock.Held
	default:
		return lock.Abandoned
	}
}

// Entry returns the row for callers. The receipt is not copied.
func (r *Row) Entry() lock.Entry {
	state := r.State()
	if state == lock.Free {
		return lock.Entry{}
	}
	end := r.Over
	if state == lock.Held {
		end = r.Ends
	}
	return lock.Entry{
		Key: string(r.Key), State: state, Token: string(r.Token), Attempt: int(r.Attempt),
		Fingerprint: bytes.Clone(r.Fingerprint), Owner: string(r.Owner),
		Receipt: r.Receipt, Fence: r.Fence, Left: time.Duration(min(end-r.At, math.MaxInt64/1000)) * time.Microsecond,
	}
}

// Micros converts d to microseconds, rounded up: a lease is never shorter than asked for.
func Micros(d time.Duration) int64 {
	return int64(min(d, math.MaxInt64-time.Microsecond)+time.Microsecond-1) / int64(time.Microsecond)
}

// Plus returns the moment micros after at, or the latest moment if the sum overflows.
func Plus(at, micros int64) int64 {
	if at > math.MaxInt64-micros {
		return math.MaxInt64
	}
	return at + micros
}

// EachRow calls read for each row of a query, of which rows and err are the results.
func EachRow(rows *sql.Rows, err error, read func(rows *sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err has its error
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
