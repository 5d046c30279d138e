package journey_test

import (
	"fmt"
	"slices"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
)

// cut is the place at which a connection is cut.
type cut struct {
	dir   cutproxy.Direction
	after int  // bytes of it
	of    int  // bytes that it has
	body  int  // of them those of its body, the last
	used  bool // the connection was used before
}

func (c cut) String() string {
	connection := "new"
	if c.used {
		connection = "used"
	}
	return fmt.Sprintf("%s cut after %d of %d bytes of the %s", connection, c.after, c.of, c.dir)
}

// lost reports whether the desk has answered, and the client does not have all of it.
func (c cut) lost() bool { return c.dir == cutproxy.Response && c.after < c.of }

// inHeader reports whether it is before the body has begun.
func (c cut) inHeader() bool { return c.after < c.of-c.body }

// thinned is each nth of them, beginning with the first-th, or all if each offset is cut at.
func thinned(all []cut, n, first int) (some []cut) {
	if *every == 1 {
		return all
	}
	for i := first; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

// cutsOf are the cuts of a request with so many bytes, of which the last are its body, and
// of its answer: at each offset that step divides, and next to where something begins or ends.
func cutsOf(request, requestBody, response, responseBody, step int, used bool) (all []cut) {
	for _, part := range []struct {
		dir      cutproxy.Direction
		of, body int
	}{{cutproxy.Request, request, requestBody}, {cutproxy.Response, response, responseBody}} {
		edges := []int{0, 1, part.of - part.body - 1, part.of - part.body, part.of - 1, part.of}
		for n := range part.of + 1 {
			if n%step == 0 || slices.Contains(edges, n) {
				all = append(all, cut{part.dir, n, part.of, part.body, used})
			}
		}
	}
	return all
}
