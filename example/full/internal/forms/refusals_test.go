package forms_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

const problemTypes = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

// TestTypedAddress: a user who has given up waiting and types the address in again. The key is
// kept, as nothing says that there was an answer; and it is kept once, so that no
// user is refused for good by an answer that the script has not seen.
func TestTypedAddress(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]plan{"script": withScript, "field only": scriptless} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWalk(t, p)
			w.shop.hold()
			w.Click("button")
			w.shop.sent(t, 1)
			time.Sleep(muse)
			w.Open(w.shop.url + "/new")
			w.shop.release()
			w.again()
			if p.noScript {
				require.EqualValues(t, 2, w.shop.orders.Load())
			} else {
				require.EqualValues(t, 1, w.shop.orders.Load())
			}
		})
	}
	t.Run("refused for good", func(t *testing.T) {
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
	})
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

// TestKinds: by the kind of a refusal, each of docs/problems.md, the script knows whether a key is
// used up. A fetch by hand goes by the same rule.
func TestKinds(t *testing.T) {
	t.Parallel()
	kept := map[string]bool{
		"in-progress": true, "held": true, "first-failed": true, "unavailable": true, "shutting-down": true,
		"unconfirmed": true, "rolled-back": true, "key-failed": true, "body-unreadable": true,
		"cooling-down": true, "unauthenticated": true, "body-too-large": true, "body-consumed": true,
		"outcome-unknown": false, "key-reused": false, "key-invalid": false, "key-missing": false, "key-not-supported": false,
		"result-not-replayable": false,
	}
	page, err := os.ReadFile("../../../../docs/problems.md")
	require.NoError(t, err)
	headings := regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, headings, len(kept))
	for _, heading := range headings {
		require.Contains(t, kept, heading[1])
	}
	w := startWalk(t, plan{refuse: true, policy: strictPolicy + "; connect-src 'self'"})
	for kind := range kept {
		// Retry-After makes the fetch return at once.
		browser.Eval[bool](w.Page, `(sessionStorage["latch-`+kind+`"] = "`+kind+`",
			latch.fetch("/orders", {method: "POST", body: new URLSearchParams("once=`+kind+`&sku=`+kind+`")})
				.then(() => { sessionStorage["ended-`+kind+`"] = ""; }), true)`)
	}
	for kind, want := range kept {
		w.Await(`sessionStorage["ended-` + kind + `"] == ""`)
		require.Equal(t, want, browser.Eval[bool](w.Page, `"latch-`+kind+`" in sessionStorage`), kind)
	}
}

// refusal answers with a problem.
func (s *shop) refusal(w http.ResponseWriter, r *http.Request) {
	p := &latch.Problem{Status: http.StatusConflict, Type: problemTypes + r.PostFormValue("sku"), RetryAfter: time.Hour}
	p.ServeHTTP(w, r)
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

// showProblem shows a refusal in a page of the shop.
func (s *shop) showProblem(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
	page, ok := p.Page(r)
	if !ok {
		p.ServeHTTP(w, r)
		return
	}
	s.show(w, p.Status, `<meta name="latch-problem" content="`+string(page.Kind)+`">`, "<h1>Refused: "+string(page.Kind)+"</h1>")
}
