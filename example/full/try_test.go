package main_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// tryForm sends the page's form, as its script does; change is what differs from
// the usual: names and values, and "" for a field that is missing.
func (c *client) tryForm(header []string, change ...string) reply {
	c.t.Helper()
	form := url.Values{"once": {"k"}, "user": {"42"}, "sku": {"tea"}, "quantity": {"1"}, "guard": {"both"}, "work": {"0s"}}
	for i := 0; i < len(change); i += 2 {
		form.Set(change[i], change[i+1])
		if change[i+1] == "" {
			form.Del(change[i])
		}
	}
	return c.do("POST", "/try", form.Encode(), append(header, "Content-Type", "application/x-www-form-urlencoded")...)
}

var asBrowser = []string{"Accept", "text/html,application/xhtml+xml"}

func TestPage(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	got := c.do("GET", "/", "")
	require.Equal(t, 200, got.status)
	require.Equal(t, "text/html; charset=utf-8", got.header.Get("Content-Type"))
	policy := got.header.Get("Content-Security-Policy")
	require.Contains(t, policy, "default-src 'none'")
	require.NotContains(t, policy, "unsafe")
	require.Contains(t, got.body, "<form")
	require.False(t, strings.Contains(got.body, "http://") || strings.Contains(got.body, "https://"), "the page loads nothing from elsewhere")
	require.NotEqual(t, got.body, c.do("GET", "/", "").body, "each form has a key of its own")

	for _, query := range []string{"order=nope&user=42", "order=%00", "guard=%3Cscript%3E&user=%3Cscript%3E"} {
		got = c.do("GET", "/?"+query, "")
		require.Equal(t, 200, got.status)
		require.Contains(t, got.body, "Nothing yet.")
		require.NotContains(t, got.body, "<script>")
	}
	id := c.tryForm(nil).header.Get("Location")[len("/orders/"):]
	require.Contains(t, c.do("GET", "/?order="+id+"&user=42", "").body, "is placed")
	require.Contains(t, c.do("GET", "/?order="+id+"&user=43", "").body, "Nothing yet.", "orders are their user's")
}

func TestAssets(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	for file, contentType := range map[string]string{
		"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		got := c.do("GET", "/assets/"+file, "")
		require.Equal(t, 200, got.status)
		require.Equal(t, contentType, got.header.Get("Content-Type"))
	}
}

func TestRefusedForms(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	for _, tt := range []struct {
		name   string
		change []string
		want   int
	}{
		{"no guard", []string{"guard", ""}, 400},
		{"unknown guard", []string{"guard", "luck"}, 400},
		{"no user", []string{"user", ""}, 400},
		{"no user, no guard", []string{"user", "", "guard", "none"}, 400},
		{"strange user", []string{"user", "4:2"}, 400},
		{"no key", []string{"once", ""}, 400},
		{"no article", []string{"sku", ""}, 400},
		{"long article", []string{"sku", strings.Repeat("x", 65)}, 400},
		{"no quantity", []string{"quantity", ""}, 400},
		{"no number", []string{"quantity", "1e3"}, 400},
		{"nothing", []string{"quantity", "0"}, 400},
		{"no duration", []string{"work", "long"}, 400},
		{"too long", []string{"work", "31s"}, 400},
		{"too large", []string{"sku", strings.Repeat("x", 64<<10)}, 413},
	} {
		got := c.tryForm(nil, tt.change...)
		t.Log(tt.name, got.body)
		requireProblem(t, tt.want, got)
		got = c.tryForm(asBrowser, tt.change...)
		require.Equal(t, tt.want, got.status)
	}
	requireProblem(t, http.StatusForbidden, c.tryForm([]string{"Sec-Fetch-Site", "cross-site"}))
	requireProblem(t, http.StatusBadRequest, c.do("GET", "/try?user=4:2", ""))
	require.Empty(t, c.orders("42"))
	require.Empty(t, c.locks())
}

// TestFormWithoutScript: after an order a browser is sent away from the form's
// address, and a refusal comes with a form that can be sent as it is.
func TestFormWithoutScript(t *testing.T) {
	t.Parallel()
	c := startDesk(t)
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	first := c.tryForm(asBrowser)
	require.Equal(t, http.StatusSeeOther, first.status)
	id := c.orders("42")[0].ID
	require.Equal(t, "/?guard=both&order="+id+"&user=42", first.header.Get("Location"))
	require.Equal(t, "/?guard=both&order="+id+"&replayed=1&user=42", c.tryForm(asBrowser).header.Get("Location"))

	other := c.tryForm(asBrowser, "sku", "coffee")
	require.Equal(t, http.StatusUnprocessableEntity, other.status)
	require.Contains(t, other.body, "The key was used for a different request.")
	require.NotContains(t, other.body, `value="k"`, "the key is another form's")
	invalid := c.tryForm(asBrowser, "quantity", "0", "once", "é")
	require.Equal(t, http.StatusBadRequest, invalid.status)
	require.Contains(t, invalid.body, `value="é"`)
	require.Len(t, c.orders("42"), 1)
}

// TestLostReplies: what the page's switch does to the store is undone by each
// guard of the library, and not by the naive one.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"memory": {}, "redis": {"-redis", redistest.Start(t).URL()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startDesk(t, append(args, "-budget", "3s")...)
			for guard, claims := range map[string]string{
				"none": "", "lock": "lost, granted", "idempotent": "lost, granted", "both": "lost, granted, granted",
			} {
				got := c.tryForm(nil, "lose", "1", "guard", guard, "user", guard)
				require.Equal(t, http.StatusCreated, got.status, got.body)
				require.Equal(t, claims, got.header.Get("X-Claims"))
				got = c.tryForm(nil, "once", "another", "guard", guard, "user", guard)
				require.Equal(t, http.StatusCreated, got.status, got.body)
			}
			require.Eventually(t, func() bool { return len(c.locks()) == 0 }, 30*time.Second, time.Millisecond)

			require.Equal(t, http.StatusCreated, c.tryForm(nil, "guard", "naive").status)
			require.Empty(t, c.locks(), "the naive lock is right as long as every reply arrives")
			requireProblem(t, http.StatusServiceUnavailable, c.tryForm(nil, "guard", "naive", "lose", "1"))
			require.Equal(t, "unheard", c.tryForm(nil, "guard", "naive", "lose", "1").header.Get("X-Claims"), "it was no grant that was lost")
			refused := c.tryForm(nil, "guard", "naive")
			requireProblem(t, http.StatusConflict, refused)
			var seconds int
			_, err := fmt.Sscan(refused.header.Get("Retry-After"), &seconds)
			require.NoError(t, err)
			require.InDelta(t, 110, seconds, 10)
			held := c.locks()
			require.Len(t, held, 1)
			require.Equal(t, 204, c.do("DELETE", "/locks?key="+queryEscape(held[0].Key)+"&token="+queryEscape(held[0].Token), "").status)
			require.Equal(t, `{"left_ms":0,"of_ms":120000,"placed":null}`+"\n", c.do("GET", "/try?user=42", "").body)
			require.Equal(t, http.StatusCreated, c.tryForm(nil, "guard", "naive").status, "an operator has ended it")
		})
	}
}
