package journey_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// row is a client and a guard, over one store.
type row struct {
	sender
	guard

	store string
	desk  *desk
	work  string // how long its orders take; "" for as long as others
}

// figures are the results of a row.
type figures struct {
	cuts    int // each of another intent
	lost    int // of them those after which the desk has answered, and the client has not all of it
	doubled int // orders that are there more than once
	missing int // that are not there
	first   int // callers that ended with the first answer
	shown   int // callers that were shown a 409, and their order was placed without another repeat
}

func (f figures) plus(g figures) figures {
	return figures{f.cuts + g.cuts, f.lost + g.lost, f.doubled + g.doubled, f.missing + g.missing, f.first + g.first, f.shown + g.shown}
}

// run sends one intent for each cut, and requires what the guard promises.
func (r row) run(t *testing.T) figures {
	t.Helper()
	var cuts []cut
	if r.process {
		cuts = thinned(r.measure(t, false), 3, 0)
	} else {
		cuts = append(thinned(r.measure(t, false), 2, 0), thinned(r.measure(t, true), 2, 1)...)
	}
	jobs := make(chan cut, len(cuts))
	for _, c := range cuts {
		jobs <- c
	}
	close(jobs)
	atOnce := 4
	if r.process {
		atOnce = 24 // they pause most of the time
	}
	all := figures{cuts: len(cuts)}
	var errs []error
	var mu sync.Mutex
	var running sync.WaitGroup
	for range min(atOnce, len(cuts)) {
		way := r.open(t)
		running.Go(func() {
			for c := range jobs {
				one, err := way.cut(t.Context(), c)
				mu.Lock()
				if all = all.plus(one); err != nil {
					errs = append(errs, fmt.Errorf("%v: %w", c, err))
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	require.NoError(t, errors.Join(errs[:min(5, len(errs))]...), "%d of %d", len(errs), len(cuts))
	t.Logf("%+v", all)
	return all
}

// measure sends one intent that is not cut, and returns where others can be.
func (r row) measure(t *testing.T, used bool) []cut {
	t.Helper()
	if r.work != "" {
		r.work = "0000ms" // it does not matter here, and is as long
	}
	w := r.open(t)
	i, err := w.intent(t.Context(), used)
	require.NoError(t, err)
	w.proxy.Count()
	sent := w.request(i)
	got, err := w.send(t.Context(), w.proxy.URL(), sent)
	require.NoError(t, err)
	request, response := w.proxy.Counted()
	n, first, err := w.effects(t.Context(), r.desk, i)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.True(t, got.same(first), "%v, not %v", got, first)
	return cutsOf(request, len(sent.body), response, len(got.body), *every, used)
}
