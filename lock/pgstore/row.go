package pgstore

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// scanRow reads one row into first and a Row: the columns of the Row, with the receipt as the last,
// follow the columns of first. Its times count from the moment of the query.
func scanRow(rows pgx.Rows, first ...any) (*rowstore.Row, error) {
	r := new(rowstore.Row)
	var linger int64
	err := rows.Scan(append(first, (*blob)(&r.Token), &r.Settled, &r.Attempt, (*blob)(&r.Fingerprint), (*blob)(&r.Owner), &r.Fence, &linger, &r.Ends, (*blob)(&r.Receipt))...)
	if err != nil {
		return nil, fmt.Errorf("a row that is not of this store: %w", err)
	}
	r.Over = rowstore.Plus(r.Ends, linger)
	return r, nil
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
