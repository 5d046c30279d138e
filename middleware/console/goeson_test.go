package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// slow is a store that takes a while for each step, in which it looks at one entry.
type slow struct {
	*memstore.Store
	step time.Duration
}

func (s slow) Page(ctx context.Context, cursor string, _ int, match func(string) bool) ([]lock.Entry, string, error) {
	passed := time.NewTimer(s.step)
	defer passed.Stop()
	select {
	case <-passed.C:
		return s.Store.Page(ctx, cursor, 1, match)
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

func (o operator) answered(query string) time.Duration {
	o.t.Helper()
	began := time.Now()
	o.page(query)
	return time.Since(began)
}

// The first answer is there in less than a second, whatever is searched for, and however slow a step is.
func TestSearchesAnswerWithinASecond(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures time")
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		for i := range 100 {
			put(t, memory, fmt.Sprint("user=", i), lock.Claim{Lease: time.Hour})
		}
		for _, step := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 150 * time.Millisecond} {
			o := operatorOf(t, guardtest.NewLocker(t, slow{memory, step}))
			for _, query := range []string{"", "q=absent", "q=user%3D99", "q=9", "answers=1&limit=200"} {
				require.Less(t, o.answered(query), time.Second, "%s, %v a step", query, step)
			}
		}
		o := operatorOf(t, guardtest.NewLocker(t, slow{memory, 700 * time.Millisecond}))
		require.GreaterOrEqual(t, o.answered("q=absent"), time.Second, "this check can fail")
	})
}

// A page without a result goes on by itself from where it has come to, until there is one, or nothing more.
func TestPagesWithoutAResultGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		for i := range 40 {
			put(t, memory, fmt.Sprintf("user=%02d", i), lock.Claim{Lease: time.Hour})
		}
		o := operatorOf(t, guardtest.NewLocker(t, slow{memory, 100 * time.Millisecond}))
		refresh := func(query string) (url string, found bool) {
			w := o.ask(http.MethodGet, query, "", browserAccept)
			require.Equal(t, http.StatusOK, w.Code)
			for _, e := range must.Get(readPage(w.Body.String()))(t) {
				found = found || e.name == "li" && e.in("main") && !e.in("section")
				if e.attrs["rel"] == "next" && !found {
					require.Contains(t, w.Header().Get("Refresh"), e.attrs["href"], "the link is for those whose browser does not go on")
				}
			}
			goesOn := w.Header().Get("Refresh")
			if goesOn == "" {
				return "", found
			}
			url, ok := strings.CutPrefix(goesOn, "0; url=?")
			require.True(t, ok, goesOn)
			return url, found
		}

		next, found := refresh("q=39&limit=1")
		for next != "" {
			require.False(t, found, "a page with a result waits for its reader")
			require.Contains(t, next, "q=39")
			next, found = refresh(next)
		}
		require.True(t, found)

		pages := 1
		for next, found = refresh("q=absent"); next != ""; next, found = refresh(next) {
			require.False(t, found)
			pages++
		}
		require.Equal(t, 5, pages, "of eight steps each")
		for _, query := range []string{"", "q=user", "limit=1", "q=user%3D01"} {
			next, _ = refresh(query)
			require.Empty(t, next, query)
		}
		require.Empty(t, o.ask(http.MethodGet, "q=absent", "", "application/json").Header().Get("Refresh"), "a script follows next")
	})
}

// erasedSoFar finds the count on a page of an erasure, of which one answer has a singular.
var erasedSoFar = regexp.MustCompile(`<strong>(\d+) stored answers? erased so far\.`)

// An erasure that takes longer than one request says how far it came, and the button goes on from there.
func TestErasureGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		vanish(t, memory, `4 "2"`, "unknown")
		l := guardtest.NewLocker(t, slow{memory, 100 * time.Millisecond}, lock.WithLogger(guardtest.Quiet))
		for i := range 30 {
			user := `4 "2"`
			if i%3 == 0 {
				user = "43"
			}
			require.Equal(t, http.StatusCreated, keyed(t, l, user, fmt.Sprint("k", i), guardtest.Created).Code)
		}
		o := operatorOf(t, l)
		form := operatorOf(t, guardtest.NewLocker(t, memory)).eraseForm(`4 "2"`, `4 "2"`)
		w := o.ask(http.MethodPost, "", form, browserAccept)
		erased, pages := -1, 1
		for form := formOf(t, w.Body.String()); form != nil; form = formOf(t, w.Body.String()) {
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			said := erasedSoFar.FindStringSubmatch(w.Body.String())
			require.NotNil(t, said, w.Body)
			soFar := must.Get(strconv.Atoi(said[1]))(t)
			require.GreaterOrEqual(t, soFar, erased)
			erased = soFar
			require.Equal(t, 31-soFar, kept(t, memory))
			require.Contains(t, w.Body.String(), "There is more to look through.")
			w = o.ask(http.MethodPost, "", form.Encode(), browserAccept)
			pages++
			require.Less(t, pages, 6, "of eight steps each, over 31 records")
		}
		require.Contains(t, w.Body.String(), "<strong>20 stored answers erased.</strong>")
		require.Contains(t, w.Body.String(), "1 record of a request stays")
		require.GreaterOrEqual(t, pages, 3)
		require.Equal(t, 11, kept(t, memory), "those of the other user, and the one that is not known")

		// The same for scripts.
		var next string
		for range 100 {
			w = o.ask(http.MethodDelete, "label=43&after="+url.QueryEscape(next), "", "application/json")
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			var done struct{ Next string }
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &done))
			if next = done.Next; next == "" {
				break
			}
		}
		require.Empty(t, next)
		require.Equal(t, 1, kept(t, memory))
	})
}

// The form of a page that was changed erases nothing.
func TestErasureThatIsNotConfirmedDoesNotGoOn(t *testing.T) {
	t.Parallel()
	memory := memstore.New()
	l := guardtest.NewLocker(t, memory)
	keyed(t, l, "42", "a", guardtest.Created)
	o := operatorOf(t, l)
	for _, form := range []url.Values{
		{"label": {"NDI"}, "confirm": {"43"}, "after": {"1"}},
		{"label": {"NDI"}, "after": {"1"}},
		{"label": {""}, "confirm": {""}},
		{"label": {"!"}, "confirm": {"!"}},
	} {
		require.Contains(t, []int{400, 422}, o.ask(http.MethodPost, "", form.Encode(), browserAccept).Code)
		require.Equal(t, 1, kept(t, memory))
	}
}

// formOf has the hidden fields of a page's form, nil if there is none.
func formOf(tb testing.TB, page string) url.Values {
	tb.Helper()
	all := must.Get(readPage(page))(tb)
	var fields url.Values
	for _, e := range all {
		if e.attrs["type"] == "hidden" {
			if fields == nil {
				fields = make(url.Values)
			}
			fields.Set(e.attrs["name"], e.attrs["value"])
		}
	}
	return fields
}

func kept(t *testing.T, memory *memstore.Store) (n int) {
	t.Helper()
	for _, err := range memory.List(t.Context()) {
		require.NoError(t, err)
		n++
	}
	return n
}
