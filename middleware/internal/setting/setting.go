// Package setting checks the settings of a guard. The constructors of package middleware panic with
// the errors of this package, and package policy reports them as mistakes in the file.
package setting

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// DefaultBodyLimit is the limit of the bodies of requests, and of answers that are kept,
// unless set.
const DefaultBodyLimit = 1 << 20

// ValidatePositive checks a duration of a Locker or a guard.
func ValidatePositive(d time.Duration) error {
	if d <= 0 {
		return errors.New("the duration must be positive")
	}
	return nil
}

// ValidateWait checks how long a request waits for another one.
func ValidateWait(d time.Duration) error {
	if d < 0 {
		return errors.New("the duration must not be negative")
	}
	return nil
}

// ValidateName checks the name of a lock.
func ValidateName(name string) error {
	switch {
	case name == "":
		return errors.New(`empty name: say what the key is, like "user" or "order"`)
	case keytext.IsRecord(name):
		return fmt.Errorf("name %q: the Locker keeps keys that begin with %s for receipts", name, keytext.RecordPrefix)
	}
	return nil
}

// ValidatePermits checks the number of permits of a key.
func ValidatePermits(n int) error {
	if n < 1 || n > keytext.MaxSlots {
		return fmt.Errorf("a key has 1 to %d permits", keytext.MaxSlots)
	}
	return nil
}

// ValidateGuardName checks the name of WithName.
func ValidateGuardName(name string) error {
	switch {
	case name == "":
		return errors.New(`empty name: say what the guard is for, like "orders"`)
	case len(name) > 64, strings.ContainsFunc(name, unicode.IsControl), !utf8.ValidString(name):
		return errors.New("a name has at most 64 bytes of UTF-8, and no control characters")
	}
	return nil
}

// ValidateWindow checks the window of Dedupe.
func ValidateWindow(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("a window of %v: it must be positive", d)
	}
	return nil
}

// ValidateContractKeep checks how long the Locker of a guard under a contract keeps answers.
func ValidateContractKeep(keep time.Duration) error {
	if least := 24 * time.Hour; keep < least {
		return fmt.Errorf("its contract demands that answers are kept for %v or longer, and they are kept for %v", least, keep)
	}
	return nil
}

// ValidateReceipts checks the Locker of Idempotent and Dedupe.
func ValidateReceipts(l *lock.Locker) error {
	return lock.Describe(l.Store()).NoReceipts
}

// ValidateBodyFirst checks the limit of WithBodyFirst.
func ValidateBodyFirst(limit int64) error {
	if limit <= 0 {
		return errors.New("the limit must be positive")
	}
	return nil
}

// ValidateBodyLimits checks the limits of WithBodyLimits.
func ValidateBodyLimits(limits ...int64) error {
	if slices.Min(limits) <= 0 {
		return errors.New("limits must be positive")
	}
	return nil
}

// ValidateCooldownStatus checks the status of WithCooldownStatus.
func ValidateCooldownStatus(code int) error {
	switch code {
	case http.StatusConflict, http.StatusTooManyRequests:
		return nil
	}
	return errors.New("use 409 or 429")
}

// ValidateInProgressStatus checks the status of WithInProgressStatus.
func ValidateInProgressStatus(code int) error {
	switch code {
	case http.StatusConflict, http.StatusServiceUnavailable:
		return nil
	}
	return errors.New("use 409 or 503")
}

// ValidateContentionStatus checks the status of WithContentionStatus.
func ValidateContentionStatus(code int) error {
	switch code {
	case http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return nil
	}
	return errors.New("use 409, 423, 425 or 429")
}
