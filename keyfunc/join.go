package keyfunc

import (
	"net/http"
	"strconv"

	"github.com/httplatch/httplatch/internal/keytext"
)

// Join makes one key of several: Join(Header("X-Tenant"), PathValue("id")).
// It is injective: two requests have the same key only if all their parts are
// equal, whatever bytes the parts consist of.
//
// A joined key starts with a unit separator (0x1f), which no other function of
// this package returns; behind it are the parts, escaped, with "&" between
// them. middleware.Lock and lock.Key know that mark: a route with
//
//	latch.Lock(l, "order", keyfunc.Join(a, b))
//
// locks what lock.Key("order", valueOfA, valueOfB) names, readable as
// "order=42&7", and never what lock.Key("order", "42&7") does. A part may be a
// Join itself; it stays one part.
//
// The first error wins, [ErrSkip] included; the functions behind it are not
// called. An empty part is [ErrMissing]. A key that comes out longer than a
// lock takes (1 KiB) is refused by the middleware; see [Hash].
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
