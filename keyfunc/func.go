package keyfunc

import "net/http"

// Func computes the key of a request. Requests with equal keys are "the same" to the
// middleware that was given the Func.
//
// An empty key without an error counts as [ErrMissing]. It is never a key that all requests share:
// for that, use [Global]. [ErrSkip] lets the request run unguarded. Every other error refuses
// the request: [ErrMissing] with 400, and an [*Error] with its status. Any other error is a
// failure of the server, like a session store that does not answer: it is answered with 500 and
// logged.
//
// The request belongs to the Func only for the call. It may replace the Body, as [JSON]
// and [Form] do, and must change nothing else. Many goroutines call a Func at once.
type Func func(*http.Request) (string, error)

// Global gives every request the same key, "*": one bucket for all. It is
// itself a [Func]: latch.Lock(l, "import", keyfunc.Global).
func Global(*http.Request) (string, error) { return "*", nil }

// call runs f and turns an empty key into an error that matches ErrMissing.
func call(f Func, r *http.Request, s source) (string, error) {
	key, err := f(r)
	if err == nil && key == "" {
		// Without a Detail: clients know nothing of functions.
		err = &Error{Status: http.StatusBadRequest, Err: s.missingError("its function returned an empty key")}
	}
	return key, err
}
