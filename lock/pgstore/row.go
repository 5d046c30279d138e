package pgstore

import (
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/lock"
)

const entryColumns = 9

// scanEntry reads a row of columns and a receipt, with so many columns before and after it.
func scanEntry(rows pgx.Rows, before, after int, first ...any) (e lock.Entry, err error) {
	var token, owner []byte
	var settled bool
	var linger, left int64
	values := append(make([]any, 0, before+entryColumns+after), first...)
	values = append(values, &token, &settled, &e.Attempt, &e.Fingerprint, &owner, &e.Fence, &linger, &left, &e.Receipt)
	for range after {
		values = append(values, nil)
	}
	if err := rows.Scan(values...); err != nil {
		return lock.Entry{}, fmt.Errorf("pgstore: a row that is not of this store: %w", err)
	}
	switch {
	case settled && left > 0:
		e.State = lock.Settled
	case settled:
		return lock.Entry{}, nil
	case left > 0:
		e.State = lock.Held
	case left+linger > 0:
		e.State, left = lock.Abandoned, left+linger
	default:
		return lock.Entry{}, nil
	}
	e.Token, e.Owner, e.Left = string(token), string(owner), time.Duration(left)*time.Microsecond
	return e, nil
}

// micros is d in microseconds, rounded up: what is asked for is what there is at least.
func micros(d time.Duration) int64 {
	return int64(min(d, math.MaxInt64-time.Microsecond)+time.Microsecond-1) / int64(time.Microsecond)
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
