package lock

import (
	"errors"
	"fmt"

	"github.com/httplatch/httplatch/internal/keytext"
)

// Key composes the key that middleware.Lock(l, name, ...) uses: "user=42" for
// Key("user", "42"), "order=7&eu" for Key("order", "7", "eu"). A worker that
// calls [Locker.Do] with it and a route of the same name exclude each other.
//
// Key is injective over name and parts: "&", "=", "~" and "#" inside them are
// escaped ("~26"), so two different identities never have the same key. An empty
// part is a part like any other: all callers whose ID is "" have the same key. So
// refuse a request without an ID, as the functions of package keyfunc do.
func Key(name string, parts ...string) string {
	return keytext.Compose(name, parts...)
}

// validKey returns an error for a key that cannot be claimed. A lock must not have the key of a record. The key of a run
// is hashed.
func validKey(key string, ofRun bool) error {
	switch {
	case key == "":
		return errors.New("lock: empty key: compose it with lock.Key")
	case !ofRun && keytext.IsRecord(key):
		return fmt.Errorf("lock: key begins with %q, which is kept for receipts; compose it with lock.Key", keytext.RecordPrefix)
	case len(key) > keytext.MaxBytes:
		return fmt.Errorf("lock: key of %d bytes: at most %d are allowed; hash what is long", len(key), keytext.MaxBytes)
	}
	return nil
}
