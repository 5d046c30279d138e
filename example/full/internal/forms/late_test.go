package forms_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// TestScriptComesLate: who clicks before the script is there sends the key of the field. Chromium
// then gives the script up, so the second click does too.
func TestScriptComesLate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plan   plan
		orders int
	}{
		"field":    {plan{lateScript: true}, 1},
		"no field": {plan{lateScript: true, noField: true, noGuard: true}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, tt.plan)
			p := browser.New(t)
			browser.Eval[bool](p, `(location.href = "`+s.url+`/new", true)`) // Open would wait for the script
			w := walk{t, p, s}
			w.fill()
			require.False(t, browser.Eval[bool](p, "!!window.latch"))
			w.twice(w.Aim("button"), 2)
			require.EqualValues(t, tt.orders, s.orders.Load())
		})
	}
}
