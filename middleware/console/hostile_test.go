package console_test

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// hostile has names that others may choose.
var hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`' onmouseover='alert(1)`,
	"` onfocus=alert(1) autofocus x=`",
	`javascript:alert(1)`,
	`</title><svg/onload=alert(1)>`,
	`</textarea><style>*{display:none}</style>`,
	`{{.Token}}{{template "top" .}}`,
	`&lt;script&gt;`, `&#60;b&#62;`, `--><b>`, `]]>`, `<!--`,
	"?key=x&token=y#z", "%3Cscript%3E", `\u003cscript\u003e`,
	"\x00\x01\x1b[31m\x7f\u0085", "\r\nX-Injected: 1\r\n\r\n", "\u202e\u2066txt.exe", "\u200b\ufeff\u00ad", "\xff\xfe\xc0\xaf",
	"+ADw-script+AD4-", "\u2028\u2029", strings.Repeat("W", 500), "a b", "é", "用户",
}

type userKey struct{}

// TestIsNotAScript: whatever keys, users and owners are called, all pages
// are valid, in which requireValid and the operator's headers leave no room for a
// script, and what they are called can be read on them.
func TestIsNotAScript(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	l := guardtest.NewLocker(t, store)
	guard := latch.Lock(l, "user", keyfunc.Context(func(ctx context.Context) string {
		name, _ := ctx.Value(userKey{}).(string)
		return name
	}))
	o := operatorOf(t, l)
	for _, name := range hostile {
		require.NoError(t, l.Do(t.Context(), lock.Key("busy", name), func(context.Context) error {
			put(t, store, "user="+name, lock.Claim{Token: "t", Owner: name + ":" + name, Lease: time.Hour})
			for _, query := range []string{"", "q=" + url.QueryEscape(name), "answers=1&limit=200"} {
				page := o.page(query)
				require.NotContains(t, page, "\u202e")
				o.list(query)
			}
			entry := o.page("key=" + url.QueryEscape("user="+name))
			require.NotContains(t, strings.ToLower(entry), "<script")
			if !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
				require.Contains(t, html.UnescapeString(entry), "user="+name)
			}
			require.Equal(t, "t", o.entry("user="+name).Token)
			require.Equal(t, http.StatusUnprocessableEntity, o.ask(http.MethodPost, "", o.form("user="+name, name+"?"), browserAccept).Code)
			return nil
		}))
		r := guardtest.Post("")
		guardtest.Serve(guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			o.page("q=user") // where the name looks like a real user
		})), r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	}
	for _, e := range o.list("limit=200").Entries {
		link, err := url.Parse(e.Link)
		require.NoError(t, err)
		require.Equal(t, "/", (&url.URL{Path: "/"}).ResolveReference(link).Path, "links stay on the console")
	}

	// And the check would find it: this is the page without an escape.
	page := o.page("key=" + url.QueryEscape("user="+hostile[0]))
	raw := strings.ReplaceAll(page, html.EscapeString(hostile[0]), hostile[0])
	require.NotEqual(t, page, raw)
	require.NotEmpty(t, faults(raw))
}
