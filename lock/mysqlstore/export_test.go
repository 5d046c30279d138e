package mysqlstore

import (
	"context"
	"database/sql"
)

// WithTx returns a context with tx for Tx, for broken stores of tests.
func WithTx(ctx context.Context, tx *sql.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// Kind is the name of kindOf.
func Kind(text string) string {
	return map[kind]string{plain: "plain", unclear: "unclear", ending: "ending"}[kindOf(text)]
}
