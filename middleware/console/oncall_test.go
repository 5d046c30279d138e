package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/console"
)

// titleOf returns the title of a page.
func titleOf(page string) string {
	_, rest, _ := strings.Cut(page, "<title>")
	title, _, _ := strings.Cut(rest, "</title>")
	return title
}

// Each page names the service and its environment, and a store that serves no call is red, in the title too.
func TestTotalOutageIsRed(t *testing.T) {
	t.Parallel()
	unfit := func(class string) lock.Store { return &failingCheck{memstore.New(), class} }
	for name, tt := range map[string]struct {
		store lock.Store
		query string
		title string
		red   string
		amber string
	}{
		"all is well":               {store: memstore.New(), title: "Locks"},
		"down":                      {store: brokenStore{memstore.New(), nil, errors.New("connection refused")}, title: "STORE DOWN", red: "every customer is refused"},
		"down, one customer":        {store: brokenStore{memstore.New(), nil, errors.New("connection refused")}, query: "q=user%3D42", title: "STORE DOWN", red: "every customer is refused"},
		"down, one key":             {store: brokenStore{memstore.New(), nil, errors.New("connection refused")}, query: "key=user%3D42", title: "The store is down: every customer is refused.", red: "The store does not answer"},
		"claims are refused":        {store: unfit("READONLY"), title: "STORE REFUSES CALLS", red: "(READONLY): customers are refused"},
		"memory is full":            {store: unfit("OOM"), query: "q=user%3D42", title: "STORE REFUSES CALLS", red: "(OOM): customers are refused"},
		"memory is full, one key":   {store: unfit("OOM"), query: "key=user%3D42", title: "user=42", red: "(OOM): customers are refused"},
		"may lose locks, and works": {store: unfit("EVICTION"), title: "Locks", amber: "found a fault (EVICTION)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := guardtest.NewLocker(t, tt.store, lock.WithLogger(slog.New(slog.DiscardHandler)))
				for service, suffix := range map[string]string{"": "", "orders, <production>": " – orders, &lt;production&gt;"} {
					o := operator{t, console.New(l, console.WithName(service))}
					page := o.ask(http.MethodGet, tt.query, "", browserAccept).Body.String()
					require.NotContains(t, page, `class="good"`)
					require.Equal(t, tt.title+suffix, titleOf(page))
					require.Equal(t, service != "", strings.Contains(page, `<p class="service">orders, &lt;production&gt;</p>`))
					for class, text := range map[string]string{"outage": tt.red, "warning": tt.amber} {
						_, box, found := strings.Cut(page, `<p class="`+class+`" role="alert">`)
						require.Equal(t, text != "", found, page)
						box, _, _ = strings.Cut(box, "</p>")
						require.Contains(t, box, text)
					}
				}
				if s, ok := tt.store.(*failingCheck); ok {
					s.class = ""
					require.NotContains(t, operatorOf(t, l).page(tt.query), `role="alert"`, "it is mended")
				}
			})
		})
	}
	require.PanicsWithValue(t, "console.New: nil Option", func() { console.New(lock.New(memstore.New()), nil) })
}

// failingCheck is a store whose check fails with a class.
type failingCheck struct {
	*memstore.Store
	class string
}

func (s *failingCheck) Describe() lock.Description {
	about := s.Store.Describe()
	about.Check = func(context.Context) error {
		if s.class == "" {
			return nil
		}
		return classed{s.class}
	}
	return about
}

type classed struct{ class string }

func (c classed) Error() string { return c.class }
func (c classed) Class() string { return c.class }

// A name that no lock has is not called free: the operator has probably misspelt it.
func TestNameThatNoLockHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := guardtest.NewLocker(t, memstore.New())
		o := operatorOf(t, l)
		for _, query := range []string{"q=", "key="} {
			page := o.page(query + "user%3D42")
			require.Contains(t, page, "so a misspelt name looks the same", "nothing is known yet")
			require.NotContains(t, page, `class="good"`)
		}
		do := func(context.Context) error { return nil }
		require.NoError(t, l.Do(t.Context(), lock.Key("user", "7"), do))
		require.NoError(t, l.DoAll(t.Context(), []string{lock.Key("item", "tea"), lock.Key("coupon", "X")}, do))
		require.NoError(t, l.Do(t.Context(), "unnamed", do))
		for _, query := range []string{"q=", "key="} {
			page := o.page(query + "usr%3D42")
			require.Contains(t, page, "ever seen here: is it spelled so?")
			require.Contains(t, page, "<code>coupon</code>, <code>item</code>, <code>user</code>.")
			require.NotContains(t, page, "is free.")
			page = o.page(query + "user%3D42")
			require.Contains(t, page, "is free.</strong> No lock is in the way.")
			require.NotContains(t, page, "spelled")
			require.NotContains(t, page, "misspelt")
		}
		require.NotContains(t, o.page("key=unnamed"), "spelled")
		require.Contains(t, o.ask(http.MethodGet, "key=usr%3D42", "", "application/json").Body.String(), "usr, was never seen here: is it spelled so?")
		require.NotContains(t, o.ask(http.MethodGet, "key=user%3D42", "", "application/json").Body.String(), "spelled")

		// A found request of the label shows that the value is right.
		run := latch.Idempotent(l, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			require.NotContains(t, o.page("q=usr%3D42"), "spelled")
			w.WriteHeader(http.StatusCreated)
		}))
		require.Equal(t, 201, guardtest.Serve(run, guardtest.Keyed("a")).Code)
	})
}

// A set is one holder with its keys, in the list, of this process, and on the page of a key.
func TestSetIsOneHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, store := range map[string]lock.Store{"at once": memstore.New(), "in order": struct{ lock.Store }{memstore.New()}} {
			l := guardtest.NewLocker(t, store)
			o := operatorOf(t, l)
			keys := []string{lock.Key("user", "42"), lock.Key("coupon", "X"), lock.Key("item", "tea")}
			require.NoError(t, l.Do(t.Context(), lock.Key("user", "7"), func(context.Context) error {
				return l.DoAll(t.Context(), keys, func(context.Context) error {
					page := o.page("")
					if name == "at once" { // the other store cannot list
						entries, _, _ := strings.Cut(page, "<details>")
						require.Equal(t, 2, strings.Count(entries, "<li>"), page)
						require.Len(t, o.list("").Entries, 4, "scripts get each key")
					}
					_, process, _ := strings.Cut(page, "This process")
					require.Equal(t, 2, strings.Count(process, "<li>"), process)
					for _, key := range keys {
						require.Equal(t, 1, strings.Count(process, key+"</a>"))
						own := o.page("key=" + url.QueryEscape(key))
						require.Contains(t, own, "Held with it, as one set")
						for _, other := range keys {
							require.Equal(t, other != key, strings.Contains(own, other+"</a>"))
						}
					}
					require.NotContains(t, o.page("key=user%3D7"), "one set")
					return nil
				})
			}))
		}
	})
}

// A record has one title, with its key below it, before it is freed and in the answer to that.
func TestRecordKeepsItsTitle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := guardtest.NewLocker(t, memstore.New())
		o := operatorOf(t, l)
		run := latch.Idempotent(l, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
		}))
		require.Equal(t, 201, guardtest.Serve(run, guardtest.Keyed("a")).Code)
		e := o.list("q=42&answers=1").Entries[0]
		heading := `<h1 class="key">POST /orders of 42</h1>` + "\n" + `<p class="name"><code>` + e.Key + `</code></p>`
		require.Contains(t, o.page("key="+e.Key), heading)
		w := o.ask(http.MethodPost, "", o.form(e.Key, e.Key), browserAccept)
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), heading)
		require.Contains(t, o.page("key="+e.Key), "Sent again, it runs as if it were new.")
	})
}

// logLine is a line of the log.
type logLine struct {
	Msg, Name, Console string
	Key                string `json:"key_sha256"`
}

func linesOf(t *testing.T, out *bytes.Buffer) (all []logLine) {
	t.Helper()
	for text := range strings.Lines(out.String()) {
		var l logLine
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		all = append(all, l)
	}
	return all
}

// The line of the log that says that a key is refused leads to the entry that waits for a
// decision, and the line of the decision can be found by it.
func TestLogLeadsToTheEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := memstore.New()
		vanish(t, memory, "jane", "a", latch.WithName("orders"))
		var out bytes.Buffer
		l := guardtest.NewLocker(t, memory, lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
		o := operatorOf(t, l)
		require.Equal(t, http.StatusConflict, keyed(t, l, "jane", "a", guardtest.Created, latch.WithName("orders")).Code)
		refused := linesOf(t, &out)
		require.Len(t, refused, 1)
		require.Contains(t, refused[0].Msg, "a key is refused because its holder has vanished")
		require.Equal(t, "orders", refused[0].Name)
		query, ok := strings.CutPrefix(refused[0].Console, "?")
		require.True(t, ok, refused[0].Console)
		require.NotContains(t, out.String(), "jane")

		page := o.page(query) // what follows the address of the console
		require.Contains(t, page, "Outcome unknown: POST /orders of jane was begun at ")
		whole := must.Get(url.ParseQuery(query))(t)
		e := o.entry(whole.Get("key")) // what may be typed into it
		require.Equal(t, "outcome-unknown", e.Situation)
		require.Len(t, o.list("q="+url.QueryEscape(whole.Get("key"))).Entries, 1)
		require.Len(t, o.list("q="+refused[0].Key).Entries, 1)

		w := o.ask(http.MethodDelete, url.Values{"key": {e.Key}, "token": {e.Token}}.Encode(), "", "application/json")
		require.Equal(t, http.StatusNoContent, w.Code)
		freed := linesOf(t, &out)[1]
		require.Equal(t, "httplatch: an operator freed a key", freed.Msg)
		require.Equal(t, refused[0].Name, freed.Name)
		require.Equal(t, refused[0].Key, freed.Key)
	})
}

// The line of a lost lock, which has no key, leads an operator who may use the console to the key: in the process that lost
// it whatever the store has by now, and in any other to the entry of the holder who has it since.
func TestLogLeadsFromALostLockToItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct{ taken, elsewhere bool }{
			"evicted":               {},
			"taken by another":      {taken: true},
			"seen in another place": {taken: true, elsewhere: true},
		} {
			memory := memstore.New()
			var out bytes.Buffer
			l := guardtest.NewLocker(t, memory, lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
			err := l.Do(t.Context(), "user=jane", func(ctx context.Context) error {
				for e, err := range memory.List(ctx) {
					require.NoError(t, err)
					must.Get(memory.Forget(ctx, e.Key, e.Token))(t)
				}
				if tt.taken {
					put(t, memory, "user=jane", lock.Claim{Token: "other", Lease: time.Hour})
				}
				put(t, memory, "user=john", lock.Claim{Token: "t", Lease: time.Hour})
				<-ctx.Done()
				return nil
			})
			require.ErrorIs(t, err, lock.ErrLost, name)
			synctest.Wait()
			lost := linesOf(t, &out)
			require.Len(t, lost, 1)
			require.NotContains(t, out.String(), "jane")
			asked := l
			if tt.elsewhere {
				asked = guardtest.NewLocker(t, memory)
			}
			query, ok := strings.CutPrefix(lost[0].Console, "?")
			require.True(t, ok, "%s: the line has no link: %s", name, out.String())
			for _, q := range []string{query, "q=" + lost[0].Key} {
				page := operatorOf(t, asked).page(q)
				require.Contains(t, page, "user=jane", name)
				require.NotContains(t, page, "user=john", name)
			}
		}
	})
}

// A lock's key is its user's, and no line has it: neither in a link.
func TestLogHasNoKeysOfLocks(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	var out bytes.Buffer
	o := operatorOf(t, guardtest.NewLocker(t, store, lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil)))))
	put(t, store, "user=j.doe", lock.Claim{Token: "t", Lease: time.Hour})
	require.Equal(t, http.StatusNoContent, o.ask(http.MethodDelete, "key=user%3Dj.doe&token=t", "", "").Code)
	lines := linesOf(t, &out)
	require.Len(t, lines, 1)
	require.Equal(t, "user", lines[0].Name)
	require.Empty(t, lines[0].Console)
	require.NotContains(t, out.String(), "j.doe")
}
