package latchtest

import (
	"fmt"

	"github.com/httplatch/httplatch/lock"
)

// show returns e in words, for failures.
func show(e lock.Entry) string {
	if e.State == lock.Free {
		return "free"
	}
	s := fmt.Sprintf("%v{token %q, attempt %d, owner %q, fingerprint %s", e.State, e.Token, e.Attempt, e.Owner, quote(e.Fingerprint))
	if e.State == lock.Settled {
		s += ", receipt " + quote(e.Receipt)
	}
	return s + "}"
}

func quote(b []byte) string {
	if len(b) > 64 {
		return fmt.Sprintf("%q... (%d bytes)", b[:64], len(b))
	}
	return fmt.Sprintf("%q", b)
}
