package lock

import "github.com/httplatch/httplatch/internal/keytext"

// MaxKeyBytes is the longest key a [Locker] takes, and the longest that a
// [Store] has to keep.
const MaxKeyBytes = 1024

// Key composes the key that middleware.Lock(l, name, ...) uses: "user=42" for
// Key("user", "42"), "order=7&eu" for Key("order", "7", "eu"). A worker that
// calls [Locker.Do] with it and a route of the same name exclude each other.
//
// Key is injective over name and parts: "&", "=" and "~" inside them are
// escaped ("~26"), so no choice of values makes two different identities meet.
func Key(name string, parts ...string) string {
	return keytext.Compose(name, parts...)
}
