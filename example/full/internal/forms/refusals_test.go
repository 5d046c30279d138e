package forms_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/form"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

const problemTypes = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

func (w walk) typed(while time.Duration) {
	w.Helper()
	w.held()
	time.Sleep(while)
	w.Open(w.shop.url + "/new")
	w.shop.release()
	w.again()
}

// TestRefusedForGood: the key of a user who types the address in again is kept once, so that no user is refused for good by
// an answer that the script has not seen.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	w := startWalk(t, plan{outage: true})
	var keys []string
	for n := range 3 {
		w.Type("[name=sku]", "outcome-unknown")
		w.send()
		require.Equal(t, "It is not known whether this was done", w.Text("h1"))
		keys = append(keys, w.shop.sent(t, n+1)[n].once)
		time.Sleep(muse)
		w.Open(w.shop.url + "/new")
	}
	require.Equal(t, keys[0], keys[1])
	require.NotEqual(t, keys[1], keys[2])
}

// TestKeyAfterRefusal: what was refused for now is sent again with its key.
func TestKeyAfterRefusal(t *testing.T) {
	t.Parallel()
	w := startWalk(t, plan{outage: true, ownRefusal: true})
	for n, kind := range []string{"unavailable", "unavailable", "outcome-unknown", "outcome-unknown"} {
		w.Type("[name=sku]", kind)
		w.send()
		w.Follow(func() { w.Click("p a") })
		if posts := w.shop.sent(t, n+1); n%2 == 1 {
			require.Equal(t, kind == "unavailable", posts[n].once == posts[n-1].once, kind)
		}
	}
}

// outage is a store that does not answer, or in which each key is of a process that died.
type outage struct {
	lock.Store

	shop *shop
}

func (o outage) Claim(_ context.Context, _ string, c lock.Claim) (lock.Entry, error) {
	if o.shop.kind.Load() == "outcome-unknown" {
		return lock.Entry{State: lock.Abandoned, Token: "another", Fingerprint: c.Fingerprint, Left: time.Hour}, nil
	}
	return lock.Entry{}, errors.Join(lock.ErrNotApplied, lock.ErrDenied)
}

func (s *shop) showProblem(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
	page, ok := p.Page(r)
	if !ok {
		p.ServeHTTP(w, r)
		return
	}
	s.show(w, p.Status, `<meta name="latch-problem" content="`+string(page.Kind)+`">`, "<h1>Refused: "+string(page.Kind)+"</h1>")
}

// startRefusing serves a form with a field, whose submissions are refused because the store is not there.
func startRefusing(t *testing.T, field string, header map[string]string, opts ...latch.IdempotentOption) (site string) {
	t.Helper()
	l := guardtest.NewLocker(t, outage{memstore.New(), &shop{}}) // unavailable
	guarded := latch.Idempotent(l, keyfunc.Global, keyfunc.Form("once"), opts...)(http.NotFoundHandler())
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		if r.Method == http.MethodPost {
			guarded.ServeHTTP(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `<!doctype html><link rel="icon" href="data:,"><h1>%s</h1>
			<form method="post" action="/orders?%s">%s%s<button>Order</button></form>`, r.URL, r.URL.RawQuery, form.Field(), field)
	}))
}

// strictest are the policies of a site without scripts.
func strictest(referrer string) map[string]string {
	return map[string]string{"Content-Security-Policy": "default-src 'none'; form-action 'self'", "Referrer-Policy": referrer}
}

// TestWayBack: without a script, and under the strictest policies, each refusal page has a link
// that works: to the form, or where the browser does not say where that is, to the site.
func TestWayBack(t *testing.T) {
	t.Parallel()
	for referrer, tt := range map[string]struct{ first, second string }{
		"same-origin": {"/new?for=tea&n=1", "/"},
		"no-referrer": {"/", "/"},
	} {
		site := startRefusing(t, `<input name="sku">`, strictest(referrer))
		p := browser.New(t, browser.NoScript())
		p.Expect("status of")
		p.Expect("Content Security Policy") // the style of the page
		for again, want := range []string{tt.first, tt.second} {
			p.Open(site + "/new?for=tea&n=1")
			for range again + 1 { // the second time with the button of the page
				p.Follow(func() { p.Click("button") })
				require.Equal(t, "Not possible at the moment", p.Text("h1"))
			}
			p.Follow(func() { p.Click("a") })
			require.Equal(t, want, p.Text("h1"), "%s, %d", referrer, again)
		}
	}
}

// TestPasswordIsNotRepeated: a refusal page does not have what was typed into a field for a
// secret, and its reload sends it.
func TestPasswordIsNotRepeated(t *testing.T) {
	t.Parallel()
	for name, repeated := range map[string]bool{"password": false, "card[cvc]": false, "sku": true} {
		site := startRefusing(t, `<input name="`+name+`" type="password">`, strictest("same-origin"))
		p := browser.New(t, browser.NoScript())
		p.Expect("status of")
		p.Expect("Content Security Policy")
		p.Open(site + "/new")
		p.Type("input[type=password]", "hunter2")
		p.Press(browser.Enter)
		p.AwaitText("h1", "Not possible at the moment")
		require.Equal(t, repeated, browser.Eval[bool](p, `document.documentElement.outerHTML.includes("hunter2")`), name)
		require.Equal(t, repeated, p.Count("button") == 1, name)
		if !repeated {
			p.Reload()
			p.AwaitText("h1", "Not possible at the moment")
		}
	}
}
