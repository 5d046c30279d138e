package console_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
)

// form is the form on the page of key, with confirm typed in.
func (o operator) form(key, confirm string) string {
	o.t.Helper()
	return o.filled("key="+url.QueryEscape(key), confirm, 4)
}

// filled is the form on a page, with its hidden fields and confirm: so many fields.
func (o operator) filled(query, confirm string, fields int) string {
	o.t.Helper()
	sent := formOf(o.t, o.page(query))
	sent.Set("confirm", confirm)
	require.Len(o.t, sent, fields)
	return sent.Encode()
}

func TestFrees(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	o := operatorOf(t, guardtest.NewLocker(t, store))
	hash := "once:" + strings.Repeat("0123456789abcdef", 4)
	for _, tt := range []struct{ key, typed string }{
		{"user=42", "42"},
		{"user=42", "user=42"},
		{"user=42", " 42\n"},
		{"order=7&eu", "7&eu"},
		{"cron", "cron"},
		{"user=", "user="},
		{"user= ", "user="},
		{hash, "89abcdef"},
		{"user=a\r\nb", `a\x0d\x0ab`},
		{"user=\xff\xfe", `\xff\xfe`},
		{"user=\u202eevil", `\u{202e}evil`},
		{`user=<script>"&'`, `<script>"&'`},
	} {
		for _, wrong := range []string{"", "4", "user", "user=43", "yes"} {
			put(t, store, tt.key, lock.Claim{Token: "t", Lease: time.Hour})
			for _, accept := range []string{browserAccept, "application/json"} {
				w := o.ask(http.MethodPost, "", o.form(tt.key, wrong), accept)
				require.Equal(t, http.StatusUnprocessableEntity, w.Code, "%q %q", tt.key, wrong)
				require.Contains(t, w.Body.String(), "what the key reads")
			}
		}
		require.Equal(t, "t", o.entry(tt.key).Token)
		w := o.ask(http.MethodPost, "", o.form(tt.key, tt.typed), browserAccept)
		require.Equal(t, http.StatusOK, w.Code, "%q: %s", tt.key, w.Body)
		require.Contains(t, w.Body.String(), "Freed.")
		require.Equal(t, lock.Free, must.Get(store.Get(t.Context(), tt.key))(t).State, "%q", tt.key)
	}
	put(t, store, "user=42", lock.Claim{Token: "t", Lease: time.Hour})
	require.Equal(t, http.StatusNoContent, o.ask(http.MethodPost, "", o.form("user=42", "42"), "application/json").Code)
	put(t, store, "user=42", lock.Claim{Token: "t", Lease: time.Hour})
	w := o.ask(http.MethodDelete, "key=user%3D42&token=t", "", "application/json")
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Empty(t, w.Body.String())
	require.Equal(t, http.StatusNotFound, o.ask(http.MethodDelete, "key=user%3D42&token=t", "", "").Code)
}

// staleTokenRefused frees, in a console over store, what an operator looked at after another request has taken the key.
func staleTokenRefused(t *testing.T, store lock.Store) error {
	t.Helper()
	o := operatorOf(t, guardtest.NewLocker(t, store))
	put(t, store, "user=42", lock.Claim{Token: "first", Lease: time.Hour})
	shown := o.form("user=42", "42")
	must.Yes(t)(store.Release(t.Context(), "user=42", lock.Claim{Token: "first"}))
	put(t, store, "user=42", lock.Claim{Token: "second", Lease: time.Hour})

	for _, accept := range []string{browserAccept, "application/json"} {
		byForm := o.ask(http.MethodPost, "", shown, accept)
		byScript := o.ask(http.MethodDelete, "key=user%3D42&token=first", "", accept)
		e := must.Get(store.Get(t.Context(), "user=42"))(t)
		switch {
		case e.Token != "second":
			return errors.New("the successor was freed")
		case byForm.Code != http.StatusConflict || byScript.Code != http.StatusConflict:
			return errors.New("it was not refused")
		case !strings.Contains(byForm.Body.String(), "Another holder has the key by now."):
			return errors.New("it does not say why")
		}
	}
	return nil
}

// An operator looks at a request that runs, or whose process has vanished. By the time the form is sent, the run
// has left its answer, under the same token. The answer stays, unless the operator has seen it.
func TestFreesNoAnswerThatWasNotSeen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]lock.Claim{
		"running":   {Token: "t", Lease: time.Hour},
		"abandoned": {Token: "t", Lease: time.Millisecond, Linger: time.Hour},
	} {
		for what, key := range map[string]string{"request": keytext.Record(name), "step": keytext.Step(keytext.Record(name), "charge")} {
			store := memstore.New()
			o := operatorOf(t, guardtest.NewLocker(t, store))
			put(t, store, key, c)
			confirm := o.entry(key).Key
			form := o.form(key, confirm)
			settleAs(t, store, key, "t", []byte("an answer"), time.Hour)
			w := o.ask(http.MethodPost, "", form, browserAccept)
			require.Equal(t, http.StatusConflict, w.Code, "%s %s", name, what)
			require.Contains(t, w.Body.String(), "It has an answer by now.")
			require.Equal(t, lock.Settled.String(), o.entry(key).State)

			require.Equal(t, http.StatusOK, o.ask(http.MethodPost, "", o.form(key, confirm), browserAccept).Code)
		}
	}
}

// careless frees whatever is there.
type careless struct {
	lock.Store
	lock.Inspector
}

func (c careless) Forget(ctx context.Context, key, _ string) (bool, error) {
	e, err := c.Get(ctx, key)
	if err != nil {
		return false, err
	}
	return c.Inspector.Forget(ctx, key, e.Token)
}

func TestRefusesStaleTokens(t *testing.T) {
	t.Parallel()
	require.NoError(t, staleTokenRefused(t, memstore.New()))
	require.NoError(t, staleTokenRefused(t, &guardtest.StubStore{Store: memstore.New()}), "without an Inspector")
	memory := memstore.New()
	require.EqualError(t, staleTokenRefused(t, careless{memory, memory}), "the successor was freed")
}

// What another site can have a browser send is refused, with or without a body.
func TestRefusesOtherSites(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	o := operatorOf(t, guardtest.NewLocker(t, store))
	for what, tt := range map[string]struct {
		header  []string
		refused bool
	}{
		"another site":             {[]string{"Sec-Fetch-Site", "cross-site"}, true},
		"another host of the site": {[]string{"Sec-Fetch-Site", "same-site"}, true},
		"another origin":           {[]string{"Origin", "https://evil.example"}, true},
		"no origin to speak of":    {[]string{"Origin", "null"}, true},
		"another port":             {[]string{"Origin", "http://desk.example:8081"}, true},
		"the page itself":          {[]string{"Sec-Fetch-Site", "same-origin", "Origin", "http://desk.example"}, false},
		"an old browser":           {[]string{"Origin", "http://desk.example"}, false},
		"a script, not a browser":  {nil, false},
	} {
		for _, accept := range []string{browserAccept, "application/json"} {
			put(t, store, "user=42", lock.Claim{Token: "t", Lease: time.Hour})
			form := o.form("user=42", "42") // more than another site can know
			codes := []int{
				o.ask(http.MethodPost, "", form, accept, tt.header...).Code,
				o.ask(http.MethodDelete, "key=user%3D42&token=t", "", accept, tt.header...).Code,
			}
			e := must.Get(store.Get(t.Context(), "user=42"))(t)
			if tt.refused {
				require.Equal(t, []int{http.StatusForbidden, http.StatusForbidden}, codes, what)
				require.Equal(t, lock.Held, e.State, what)
				continue
			}
			require.NotContains(t, codes, http.StatusForbidden, what)
			require.Equal(t, lock.Free, e.State, what)
		}
	}
}

// Work under a key that is freed is notified at its next renewal, and from then on
// the next request can take the key in this process too.
func TestFreesWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := guardtest.NewLocker(t, memstore.New(), lock.WithLogger(guardtest.Quiet))
		o := operatorOf(t, l)
		lost := make(chan error, 1)
		go func() {
			_ = l.Do(t.Context(), "user=42", func(ctx context.Context) error {
				<-ctx.Done()
				lost <- context.Cause(ctx)
				return nil
			})
		}()
		synctest.Wait()
		require.Equal(t, http.StatusOK, o.ask(http.MethodPost, "", o.form("user=42", "42"), browserAccept).Code)
		require.ErrorIs(t, <-lost, lock.ErrLost)
		synctest.Wait() // the Locker counts the loss after it has notified the work
		require.NoError(t, l.Do(t.Context(), "user=42", func(context.Context) error { return nil }))
		require.Equal(t, "lost", o.list("").Process.Recoveries[0].Kind)
	})
}

// claimsOnly is a store that answers nothing but claims.
type claimsOnly struct{ lock.Store }

var errNoAnswer = errors.New("no answer")

func (claimsOnly) Get(context.Context, string) (lock.Entry, error) { return lock.Entry{}, errNoAnswer }

func (claimsOnly) Release(context.Context, string, lock.Claim) (bool, error) {
	return false, errNoAnswer
}

func TestSilentStore(t *testing.T) {
	t.Parallel()
	o := operatorOf(t, guardtest.NewLocker(t, claimsOnly{memstore.New()}))
	require.Equal(t, http.StatusServiceUnavailable, o.ask(http.MethodGet, "key=a", "", browserAccept).Code)
	w := o.ask(http.MethodDelete, "key=a&token=t", "", browserAccept)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Contains(t, w.Body.String(), "may or may not be free")
	w = o.ask(http.MethodGet, "q=user%3D42", "", "application/json")
	require.Equal(t, http.StatusServiceUnavailable, w.Code, "not an empty list")
	require.Contains(t, w.Body.String(), `"trouble":"The store does not answer.`)
}

// An entry that can no longer be unsealed can be found and freed all the same.
func TestFreesWhatIsSealed(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	put(t, memory, "user=42", lock.Claim{Token: "t", Lease: time.Hour})
	settleAs(t, sealed.New(memory, guardtest.NewSeal(t, strings.Repeat("1", 32))), "user=42", "t", nil, time.Hour)
	o := operatorOf(t, guardtest.NewLocker(t, sealed.New(memory, guardtest.NewSeal(t, strings.Repeat("2", 32)))))
	require.Equal(t, "cool-down", o.list("q=user%3D42").Entries[0].Situation)
	require.Equal(t, http.StatusOK, o.ask(http.MethodPost, "", o.form("user=42", "42"), browserAccept).Code)
	require.Empty(t, o.list("").Entries)
}
