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

// DefaultBodyLimit is the limit of the bodies of requests, and of answers that are kept, unless set.
const DefaultBodyLimit = 1 << 20

// ValidatePositive checks a duration of a Locker or a guard.
func ValidatePositive(d time.Duration) error {
	if d <= 0 {
		return errors.New("the duration must be positive")
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

// ValidateReceipts checks the Locker of Idempotent and Dedupe.
func ValidateReceipts(l *lock.Locker) error {
	return lock.Describe(l.Store()).NoReceipts
}

// ValidateLimits checks limits of bodies.
func ValidateLimits(limits ...int64) error {
	if slices.Min(limits) <= 0 {
		return errors.New("the limit must be positive")
	}
	return nil
}

// Statuses are those with which a guard may refuse in one case.
type Statuses []int

// The statuses of WithCooldownStatus, WithInProgressStatus and WithContentionStatus.
var (
	CooldownStatuses   = Statuses{http.StatusConflict, http.StatusTooManyRequests}
	InProgressStatuses = Statuses{http.StatusConflict, http.StatusServiceUnavailable}
	ContentionStatuses = Statuses{http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests}
)

// Validate checks a status of s.
func (s Statuses) Validate(code int) error {
	if slices.Contains(s, code) {
		return nil
	}
	last := len(s) - 1
	return fmt.Errorf("use %s or %d", strings.Trim(strings.ReplaceAll(fmt.Sprint([]int(s[:last])), " ", ", "), "[]"), s[last])
}
