package keyfunc

import (
	"net/http"

	"github.com/httplatch/httplatch/internal/bodybuf"
)

// CanonicalJSON takes the whole JSON body, in the canonical form of RFC 8785 (JCS). It is itself
// a [Func], for middleware.WithFingerprint. With it, a client may serialise its request anew for
// each repeat:
//
//	latch.Idempotent(l, scope, keyfunc.IdempotencyKey, latch.WithFingerprint(keyfunc.CanonicalJSON))
//
// Two bodies are equal if they differ only in white space, in the order of the members of
// objects, in escapes in strings, and in the spelling of numbers: 1, 1.0 and 10e-1 are equal.
// Null and an absent member are different, and so are 1 and "1", two orders of an array, and
// names and strings in two Unicode spellings. The query is not compared.
//
// There is one deviation: RFC 8785 rounds all numbers to float64, so that 9007199254740993 is
// ...992. CanonicalJSON keeps all digits of a number that a float64 does not hold: two order
// numbers must not be equal because they are long.
//
// A body that two readers may read differently is refused with 400: one that is not exactly one
// JSON value in UTF-8, an object with two members of one name, half of a surrogate pair, more
// than 64 levels of nesting, an exponent of more than 9 digits, a body that is declared as
// something else (as for [JSON]). Names that differ only in case are two names. A request
// without a body is [ErrMissing]. With [Optional], Idempotent and Dedupe compare such requests
// by their default fingerprint. Sizes are limited as for JSON, and the result has at most six
// times the bytes of the body.
//
// It costs about as much as decoding the body.
func CanonicalJSON(r *http.Request) (string, error) {
	const from = source("JSON body")
	data, err := from.body(r)
	if err != nil {
		return "", err
	}
	if len(data) == 0 && !bodybuf.FormParsed(r) { // a parsed form is no JSON
		return "", from.missing("send it")
	}
	if err := from.declaredAsJSON(r, nil); err != nil {
		return "", err
	}
	text, err := canonical(data)
	if err != nil {
		return "", from.refuse(err)
	}
	return string(text), nil
}
