package keyfunc

import (
	"net/http"
	"strconv"

	"github.com/httplatch/httplatch/internal/keytext"
)

// Join makes one key of several: Join(Header("X-Tenant"), PathValue("id")). It is
// injective: two requests have the same key only if all their parts are equal, whatever
// bytes the parts have.
//
// A joined key starts with a unit separator (0x1f), which no other function of this package
// returns. Then follow the parts, escaped, with "&" between them. middleware.Lock and lock.Key
// recognise the separator: a route with
//
//	latch.Lock(l, "order", keyfunc.Join(a, b))
//
// locks the key lock.Key("order", valueOfA, valueOfB), readable as "order=42&7", and
// never the key lock.Key("order", "42&7"). A part may itself be a Join. It counts as one part.
//
// Join returns the first error, [ErrSkip] included, and does not call the later functions. An
// empty part is [ErrMissing]. The middleware refuses a key that is too long for a lock (1 KiB);
// see [Hash].
//
// Join panics without functions and on a nil one.
func Join(fs ...Func) Func {
	if len(fs) == 0 {
		panic("keyfunc.Join: no functions")
	}
	fs = append([]Func(nil), fs...)
	from := make([]source, len(fs))
	for i, f := range fs {
		from[i] = source("part " + strconv.Itoa(i+1) + " of Join")
		if f == nil {
			panic("keyfunc.Join: " + string(from[i]) + " is nil")
		}
	}
	return func(r *http.Request) (string, error) {
		var few [4]string // keeps the usual joins off the heap
		parts := few[:0]
		for i, f := range fs {
			part, err := call(f, r, from[i])
			if err != nil {
				return "", err
			}
			parts = append(parts, part)
		}
		return keytext.Join(parts...), nil
	}
}
