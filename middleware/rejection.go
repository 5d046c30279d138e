package middleware

import "strings"

// rejection notifies observers of a request that was refused for itself, before
// the Locker was asked.
type rejection struct{ problem *Problem }

func (r rejection) Error() string { return r.problem.Err.Error() }
func (r rejection) Unwrap() error { return r.problem.Err }

// Class is a short and stable name of the reason: the last part of the
// problem's type, or "refused" for a status that a key function chose itself.
func (r rejection) Class() string {
	kind := r.problem.Kind()
	if kind == "" {
		return "refused"
	}
	return strings.ReplaceAll(string(kind), "-", "_")
}
