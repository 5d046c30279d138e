package integrations_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

var errNoID = errors.New("a message without an ID")

// permanent reports whether every redelivery will be refused as this one was, until a person
// has looked.
func permanent(err error) bool {
	return errors.Is(err, lock.ErrAbandoned) || errors.Is(err, lock.ErrMismatch) || errors.Is(err, errNoID)
}

// abandon leaves what a process leaves that dies while it works on key.
func abandon(t *testing.T, store lock.Store, key string) {
	t.Helper()
	record := keytext.Record(key)
	_, err := store.Claim(t.Context(), record, lock.Claim{Token: "dead", Attempt: 1, Lease: time.Millisecond, Linger: time.Hour})
	require.NoError(t, err)
	eventually(t, func() bool {
		entry, err := store.Get(t.Context(), record)
		return err == nil && entry.State == lock.Abandoned
	}, "the lease does not end")
}
