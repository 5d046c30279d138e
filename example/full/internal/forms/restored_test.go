package forms_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// TestRestoredSession: the answer is lost, and the user closes the browser, which brings the tab
// back when it is opened again.
func TestRestoredSession(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		plan   plan
		orders int
	}{
		"script":     {withScript, 1},
		"field only": {scriptless, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, tt.plan)
			session := browser.NewSession(t, s.url+"/new")
			session.Page().Expect("net::ERR_")
			w := walk{t, session.Page(), s}
			w.fill()
			w.unanswered()
			w.Back()
			session.Restart(s.url + "/new")
			walk{t, session.Page(), s}.again()
			require.EqualValues(t, tt.orders, s.orders.Load())
		})
	}
}
