package middleware

import (
	"errors"
	"maps"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/middleware/internal/identity"
	"github.com/httplatch/httplatch/middleware/internal/jsonrpc"
)

// identify sets the key of x and its fingerprint. It reads the whole body before the claim, so
// that a client that sends its body slowly does not hold the key meanwhile.
func (g *guard) identify(x *run) (err error) {
	r := x.own
	var call *jsonrpc.Call // nil without JSONRPC
	if g.rpc != nil {
		if call, err = g.rpc.call(r, g.requestLimit); err != nil {
			return err
		}
		x.awaited = call.ID
	}
	scope, err := valueOf(g.scope, r)
	if err != nil {
		return err
	}
	var key string
	switch {
	case g.key == nil:
	case call != nil:
		key, err = g.rpc.key(call, g.key, r)
	default:
		key, err = valueOf(g.key, r)
	}
	if err != nil {
		return err
	}
	s, path := &x.submission, identity.Path(r.URL)
	if x.print, err = g.fingerprintOf(r, path, call); err != nil {
		return err
	}
	s.Scope, s.Guard, s.Method, s.Path, s.Label = scope, g.hints.Name, methodOf(r), path, scope
	if g.label != nil {
		s.Label = g.label(r)
	}
	if g.key == nil {
		key = string(x.print[:])
	} else {
		x.compared = x.print[:]
	}
	x.keys = append(x.key[:0], identity.Of(g.kind, scope, s.Method, path, key))
	if x.named.Secret = g.secret; g.key != nil {
		x.named.ID = x.keys[0]
	}
	if x.awaited != nil && r.Header["Accept-Encoding"] != nil { // in a compressed answer, no replay could have its own id
		r.Header = maps.Clone(r.Header)
		r.Header["Accept-Encoding"] = []string{"identity"}
	}
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

// fingerprintOf reads the body of a request, and returns its fingerprint. call is nil without JSONRPC.
func (g *guard) fingerprintOf(r *http.Request, path string, call *jsonrpc.Call) (identity.Fingerprint, error) {
	if g.fingerprint != nil {
		if _, err := bodybuf.Bytes(r, g.requestLimit); err != nil && !errors.Is(err, bodybuf.ErrConsumed) {
			return identity.Fingerprint{}, &bodyError{err}
		}
		chosen, err := valueOf(g.fingerprint, r)
		if !errors.Is(err, keyfunc.ErrSkip) {
			return identity.OfParts(chosen), err
		}
		// Without its chosen parts, the request is compared as a whole.
	}
	content, err := bodybuf.Content(r, g.requestLimit)
	if err != nil && !errors.Is(err, bodybuf.ErrMalformed) { // a malformed body is compared as it came
		return identity.Fingerprint{}, &bodyError{err}
	}
	if call != nil && g.fingerprint == nil {
		return identity.OfParts(call.Content(g.rpc.ignored)), nil
	}
	sum, err := identity.OfRequest(r, path, content)
	if err != nil {
		return identity.Fingerprint{}, &bodyError{err}
	}
	return sum, nil
}
