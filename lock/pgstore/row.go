package pgstore

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/httplatch/httplatch/lock"
)

// scanEntry reads one row into first and an entry: the columns of the entry, with the receipt
// as the last, follow the columns of first. The entry is Free if it has ended. It then has the token
// of a claim that was not settled, and nothing of a receipt.
func scanEntry(rows pgx.Rows, first ...any) (e lock.Entry, err error) {
	var token, owner blob
	var settled bool
	var linger, left int64
	all := slices.Concat(first, []any{&token, &settled, &e.Attempt, (*blob)(&e.Fingerprint), &owner, &e.Fence, &linger, &left, (*blob)(&e.Receipt)})
	if err := rows.Scan(all...); err != nil {
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
		return lock.Entry{Token: string(token)}, nil
	}
	e.Token, e.Owner, e.Left = string(token), string(owner), time.Duration(left)*time.Microsecond
	return e, nil
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// blob is a bytea as the server writes it: in binary, or as text in one of the two formats of
// bytea_output. Behind PgBouncer the store cannot choose, and pgx reads only one of them.
type blob []byte

// ScanBytes reads the binary form.
func (b *blob) ScanBytes(v []byte) error {
	*b = bytes.Clone(v)
	return nil
}

// ScanText reads the text form.
func (b *blob) ScanText(v pgtype.Text) (err error) {
	switch digits, isHex := strings.CutPrefix(v.String, `\x`); {
	case !v.Valid:
		*b = nil
	case isHex:
		*b, err = hex.DecodeString(digits)
	default:
		*b, err = unescape(v.String)
	}
	return err
}

// unescape reads the format "escape": a byte, two backslashes, or three octal digits after
// one.
func unescape(text string) ([]byte, error) {
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] != '\\':
			b = append(b, text[i])
		case strings.HasPrefix(text[i+1:], `\`):
			b = append(b, '\\')
			i++
		default:
			octal := text[i+1 : min(i+4, len(text))]
			n, err := strconv.ParseUint(octal, 8, 8)
			if err != nil || len(octal) < 3 {
				return nil, fmt.Errorf("a bytea with %q after a backslash", octal)
			}
			b = append(b, byte(n))
			i += 3
		}
	}
	return b, nil
}
