package journey_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestJourney: wherever the connection breaks, a guard that promises it has one effect, and
// the caller gets the first answer. The twins double.
func TestJourney(t *testing.T) {
	t.Parallel()
	all := &table{all: map[line]map[string]figures{}}
	t.Run("over", func(t *testing.T) {
		for _, s := range stores {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				d := startDesk(t, s.args(t)...)
				t.Run("behind", func(t *testing.T) {
					for _, g := range guards {
						journeys(t, all, keyed, row{guard: g, store: s.name, desk: d})
					}
					journeys(t, all, []sender{curlOnce}, row{guard: guards[0], store: s.name, desk: d})
					journeys(t, all, keyless, row{guard: withoutKey, store: s.name, desk: d})
				})
				require.EqualValues(t, d.toPay.Load(), d.payments(t), "payments")
				requireAtRest(t, d)
			})
		}
	})
	all.write(t)
}

// journeys runs a row for each client.
func journeys(t *testing.T, all *table, senders []sender, r row) {
	t.Helper()
	for _, c := range senders {
		r := r
		r.sender = c
		t.Run(r.guard.name+" "+c.name, func(t *testing.T) {
			t.Parallel()
			f := r.run(t)
			all.add(r, f)
			if !r.promised {
				// Each answer that was lost is a repeat that the guard lets through. Some clients
				// do not repeat if it is lost in its body, which is the smaller part.
				require.Greater(t, f.doubled, f.lost/2, "a twin that does not double shows nothing")
			}
		})
	}
}

// requireAtRest requires that nothing is left of requests whose clients have gone away.
func requireAtRest(t *testing.T, d *desk) {
	t.Helper()
	var held []string
	require.Eventually(t, func() bool {
		var err error
		held, err = d.heldLocks(t.Context())
		return err == nil && len(held) == 0
	}, time.Minute, 10*time.Millisecond, "%v", held)
}

// TestPage: docs/evidence/journey.md has a line for each of the table.
func TestPage(t *testing.T) {
	t.Parallel()
	text := textOf(t, page)
	require.True(t, strings.HasPrefix(text, preface))
	for _, l := range lines() {
		require.True(t, strings.Contains(text, l.String()), "it has no line for %v", l) //nolint:testifylint // its text would be the whole page
	}
}

func textOf(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(text)
}
