package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

// What the settings of a guard may be. The constructors panic about the errors of
// these functions, and LoadPolicies reports them as mistakes in the file.

// must panics if err, which the caller of this package has made, is not nil.
func must(err error, format string, args ...any) {
	if err != nil {
		panic(fmt.Sprintf("middleware."+format+": %v", append(args, err)...))
	}
}

// validatePositive is for durations of a Locker and of guards.
func validatePositive(d time.Duration) error {
	if d <= 0 {
		return errors.New("the duration must be positive")
	}
	return nil
}

// validateName is for the name of a lock.
func validateName(name string) error {
	switch {
	case name == "":
		return errors.New(`empty name: say what the key is, like "user" or "order"`)
	case strings.HasPrefix(name, keytext.RecordPrefix):
		return fmt.Errorf("name %q: the Locker keeps keys that begin with %s for receipts", name, keytext.RecordPrefix)
	}
	return nil
}

// validateWindow is for that of Dedupe.
func validateWindow(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("a window of %v: it must be positive", d)
	}
	return nil
}

// validateReceipts is for the Locker of Idempotent and Dedupe.
func validateReceipts(l *lock.Locker) error {
	if s, ok := l.Store().(interface{ LocksOnly() error }); ok {
		return s.LocksOnly()
	}
	return nil
}

// validateBodyFirst is for the limit of WithBodyFirst.
func validateBodyFirst(limit int64) error {
	if limit <= 0 {
		return errors.New("the limit must be positive")
	}
	return nil
}

// validateBodyLimits is for those of WithBodyLimits.
func validateBodyLimits(limits ...int64) error {
	if slices.Min(limits) <= 0 {
		return errors.New("limits must be positive")
	}
	return nil
}

func validateCooldownStatus(code int) error {
	switch code {
	case http.StatusConflict, http.StatusTooManyRequests:
		return nil
	}
	return errors.New("use 409 or 429")
}

func validateContentionStatus(code int) error {
	switch code {
	case http.StatusConflict, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests:
		return nil
	}
	return errors.New("use 409, 423, 425 or 429")
}

// validateFinalBelow is for final_below of a policies file.
func validateFinalBelow(status int) error {
	if status <= 200 || status > 600 {
		return fmt.Errorf("%d keeps no answers, or all there are: write 300, 400 or 500", status)
	}
	return nil
}
