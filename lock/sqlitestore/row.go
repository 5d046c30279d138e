package sqlitestore

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// row is one entry in a table.
type row struct {
	key, token         []byte
	attempt            int64
	fingerprint, owner []byte
	fence              int64
	settled            bool
	receipt            []byte
	ends, over         int64 // in microseconds since 1970; see Schema
}

// rowOf returns the row of a claim.
func rowOf(key string, c *lock.Claim, now int64) *row {
	ends := plus(now, micros(c.Lease))
	return &row{
		key: []byte(key), token: []byte(c.Token), attempt: int64(c.Attempt), fingerprint: c.Fingerprint, owner: []byte(c.Owner),
		ends: ends, over: plus(ends, micros(c.Linger)),
	}
}

// read returns the row of a key in one of the tables, nil if there is none.
func read(ctx context.Context, get *sql.Stmt, key []byte) (*row, error) {
	r := new(row)
	err := r.scan(get.QueryRowContext(ctx, key))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil //nolint:nilnil // there is none
	}
	return r, err
}

func (r *row) scan(from interface{ Scan(into ...any) error }) error {
	err := from.Scan(&r.key, &r.token, &r.attempt, &r.fingerprint, &r.owner, &r.fence, &r.settled, &r.receipt, &r.ends, &r.over)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("reading a row: %w", err)
	}
	return err
}

func (r *row) values() []any {
	return []any{r.key, r.token, r.attempt, r.fingerprint, r.owner, r.fence, r.settled, r.receipt, r.ends, r.over}
}

// settle turns the row into a receipt.
func (r *row) settle(receipt []byte, now int64, keep time.Duration) {
	r.settled, r.receipt, r.ends = true, receipt, plus(now, micros(keep))
	r.over = r.ends
}

// of reports whether the row is an entry of token.
func (r *row) of(token string, now int64) bool {
	return r.state(now) != lock.Free && string(r.token) == token
}

// yieldsTo reports whether c takes the key. r may be nil.
func (r *row) yieldsTo(c *lock.Claim, now int64) bool {
	state := r.state(now)
	if c.Replaces == "" {
		return state == lock.Free
	}
	return (state == lock.Abandoned || state == lock.Held && c.ReplacesHeld) && string(r.token) == c.Replaces
}

// state returns the state of the entry. r may be nil.
func (r *row) state(now int64) lock.State {
	switch {
	case r == nil || now >= r.over:
		return lock.Free
	case r.settled:
		return lock.Settled
	case now < r.ends:
		return lock.Held
	default:
		return lock.Abandoned
	}
}

// entry returns the row for callers. r may be nil.
func (r *row) entry(now int64) lock.Entry {
	state := r.state(now)
	if state == lock.Free {
		return lock.Entry{}
	}
	end := r.over
	if state == lock.Held {
		end = r.ends
	}
	return lock.Entry{
		Key: string(r.key), State: state, Token: string(r.token), Attempt: int(r.attempt), Fingerprint: bytes.Clone(r.fingerprint), Owner: string(r.owner),
		Receipt: r.receipt, Fence: r.fence, Left: time.Duration(min(end-now, math.MaxInt64/1000)) * time.Microsecond,
	}
}

// micros converts d to microseconds, rounded up: a lease is never shorter than asked for.
func micros(d time.Duration) int64 {
	return int64(min(d, math.MaxInt64-time.Microsecond)+time.Microsecond-1) / int64(time.Microsecond)
}

// plus returns the moment after at, or the last one there is.
func plus(at, micros int64) int64 {
	if at > math.MaxInt64-micros {
		return math.MaxInt64
	}
	return at + micros
}
