package middleware

import (
	"errors"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/middleware/internal/fingerprint"
	"github.com/httplatch/httplatch/middleware/internal/identity"
	"github.com/httplatch/httplatch/middleware/internal/jsonrpc"
)

// identify sets the record of x and its fingerprint. It reads the whole body before the claim, so
// that a client that sends its body slowly does not hold the key meanwhile.
func (g *onceGuard) identify(x *run) (err error) {
	r := x.request
	var call *jsonrpc.Call // nil without JSONRPC
	if g.rpc != nil {
		if call, err = g.rpc.call(r, g.requestLimit); err != nil {
			return err
		}
	}
	scope, err := valueOf(g.scope, r)
	if err != nil {
		return err
	}
	var key string
	if g.key != nil {
		if call != nil {
			key, err = g.rpc.key(call, g.key, r)
		} else {
			key, err = valueOf(g.key, r)
		}
		if err != nil {
			return err
		}
	}
	_, err = bodybuf.Bytes(r, g.requestLimit)
	if err != nil && (g.fingerprint == nil || !errors.Is(err, bodybuf.ErrConsumed)) {
		return &bodyError{err}
	}
	path := identity.Path(r.URL)
	if call != nil && g.fingerprint == nil {
		x.print = fingerprint.OfParts(call.Content(g.rpc.ignored))
	} else if x.print, err = g.fingerprintOf(r, path); err != nil {
		return err
	}
	if g.key == nil {
		key = string(x.print[:])
	}
	s := &x.submission
	s.Scope, s.Guard, s.Method, s.Path, s.Label = scope, g.hints.Name, methodOf(r), path, scope
	if g.label != nil {
		s.Label = g.label(r)
	}
	x.id = identity.Of(g.kind, scope, s.Method, path, key)
	return nil
}

// methodOf returns the method of r. Middleware inside the guard may replace POST by the method that
// a header names: a POST as PATCH and a POST as DELETE are two requests.
func methodOf(r *http.Request) string {
	if as := strings.Join(r.Header["X-Http-Method-Override"], ", "); as != "" && r.Method == http.MethodPost {
		return strings.ToUpper(as)
	}
	return r.Method
}

// fingerprintOf returns the fingerprint of a request.
func (g *onceGuard) fingerprintOf(r *http.Request, path string) (fingerprint.Sum, error) {
	if g.fingerprint != nil {
		chosen, missing := valueOf(g.fingerprint, r)
		switch {
		case missing == nil:
			return fingerprint.OfParts(chosen), nil
		case !errors.Is(missing, keyfunc.ErrSkip):
			return fingerprint.Sum{}, missing
		}
		// The chosen parts are missing. The request is guarded all the same, and compared as
		// a whole.
	}
	content, err := bodybuf.Content(r, g.requestLimit)
	if err != nil && !errors.Is(err, bodybuf.ErrMalformed) { // a malformed body is compared as it came
		return fingerprint.Sum{}, &bodyError{err}
	}
	sum, err := fingerprint.OfRequest(r, path, content)
	if err != nil {
		return fingerprint.Sum{}, &bodyError{err}
	}
	return sum, nil
}
