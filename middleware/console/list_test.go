package console_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

const many = 10_000

// walk follows the links from page to page, as an operator would, and returns
// how many pages there were and how large the largest was.
func (o operator) walk(query string) (keys map[string]bool, pages, most int) {
	o.t.Helper()
	keys = make(map[string]bool)
	for more := true; more; pages++ {
		all := must.Get(readPage(o.page(query)))(o.t)
		shown := 0
		more = false
		for _, e := range all {
			switch {
			case e.name == "a" && e.attrs["class"] == "key" && e.in("main") && !e.in("section"):
				keys[e.text] = true
				shown++
			case e.attrs["rel"] == "next":
				more, query = true, strings.TrimPrefix(e.attrs["href"], "?")
			}
		}
		most = max(most, shown)
		require.Less(o.t, pages, many)
	}
	return keys, pages, most
}

// withoutPages is a store that lists its entries, and has no pages.
type withoutPages struct{ *memstore.Store }

func (withoutPages) Page(context.Context, string, int, func(string) bool) ([]lock.Entry, string, error) {
	return nil, "", errors.ErrUnsupported
}

// TestPagesOfManyRecords bounds what is read for a page.
func TestPagesTenThousand(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "lists 10,000 entries")
	t.Parallel()
	memory := memstore.New()
	for i := range many {
		put(t, memory, fmt.Sprint("user=", i), lock.Claim{Owner: "web-3:4711", Lease: time.Hour})
	}
	for name, store := range map[string]lock.Store{"pages": memory, "no pages": withoutPages{memory}} {
		parallel.Run(t, name, func(t *testing.T) {
			o := operatorOf(t, guardtest.NewLocker(t, store))
			keys, pages, most := o.walk("limit=200")
			require.Len(t, keys, many)
			require.LessOrEqual(t, most, 400)
			require.LessOrEqual(t, pages, many/200+5) // a busy machine ends one that takes a second
			keys, _, _ = o.walk("q=user%3D4242")
			require.Equal(t, map[string]bool{"user=4242": true}, keys)
			keys, _, _ = o.walk("q=424&limit=5")
			require.Len(t, keys, 20, "424, 1424 to 9424 and 4240 to 4249")
			require.Contains(t, o.page("after="+url.QueryEscape("no cursor")), "</html>")
		})
	}
}

// commands is how often the server was asked for what since it was last asked this.
func commands(tb testing.TB, srv *redistest.Server) map[string]int {
	tb.Helper()
	text, _ := srv.Do(tb, "INFO", "commandstats").(string)
	calls := make(map[string]int)
	for _, m := range regexp.MustCompile(`cmdstat_(\S+?):calls=(\d+)`).FindAllStringSubmatch(text, -1) {
		calls[m[1]], _ = strconv.Atoi(m[2])
	}
	srv.Do(tb, "CONFIG", "RESETSTAT")
	return calls
}

var records = flag.Int("console.records", 20_000, "how many records BenchmarkConsole looks through")

func label(i int) string { return fmt.Sprintf("user-%07d", i) }

// fillRecords leaves n stored answers, of as many users. The first is stored by a guard, and the others are copies of it
// with the label of another user, since a million requests take minutes.
func fillRecords(tb testing.TB, srv *redistest.Server, store lock.Store, n int) {
	tb.Helper()
	l := guardtest.NewLocker(tb, store)
	require.Equal(tb, http.StatusCreated, keyed(tb, l, label(0), "k", guardtest.Created, latch.WithName("orders")).Code)
	names := srv.Keys(tb, "*")
	require.Len(tb, names, 1)
	value, ok := srv.Do(tb, "GET", names[0]).(string)
	require.True(tb, ok)
	require.Equal(tb, 1, strings.Count(value, label(0)))
	prefix, _, ok := strings.Cut(names[0], keytext.RecordPrefix)
	require.True(tb, ok)

	const batch, set = 1000, "for i = 1, #ARGV, 2 do redis.call('SET', ARGV[i], ARGV[i + 1], 'EX', 86400) end"
	for from := 1; from < n; from += batch {
		call := []any{"EVAL", set, 0}
		for i := from; i < min(from+batch, n); i++ {
			hash := sha256.Sum256([]byte(label(i)))
			call = append(call, prefix+keytext.RecordPrefix+hex.EncodeToString(hash[:]), strings.Replace(value, label(0), label(i), 1))
		}
		srv.Do(tb, call...)
	}
}

// question is the query of an operator, with the expected answers.
type question struct {
	what, query string
	found       string // in the last page
}

type answers struct {
	pages          int
	first, slowest time.Duration
	scans, reads   int // of the page with the most
}

// follow asks, and goes on until there is a result, or all is looked through.
func (q question) follow(o operator, srv *redistest.Server) (all answers) {
	o.t.Helper()
	for query := q.query; ; {
		commands(o.t, srv)
		began := time.Now()
		w := o.ask(http.MethodGet, query, "", browserAccept)
		took := time.Since(began)
		require.Equal(o.t, http.StatusOK, w.Code)
		calls := commands(o.t, srv)
		if all.pages == 0 {
			all.first = took
		}
		all.pages++
		all.slowest = max(all.slowest, took)
		all.scans, all.reads = max(all.scans, calls["scan"]), max(all.reads, calls["get"])
		next, goesOn := strings.CutPrefix(w.Header().Get("Refresh"), "0; url=?")
		if !goesOn {
			require.Contains(o.t, w.Body.String(), q.found, q.what)
			return all
		}
		query = next
	}
}

// consoleOf is the console over n stored answers in a Redis, a held lock, and a request whose
// process has died; with what operators ask it.
func consoleOf(tb testing.TB, n int) (operator, *redistest.Server, []question) {
	tb.Helper()
	srv := redistest.Start(tb)
	store := guardtest.OpenRedis(tb, srv.URL())
	fillRecords(tb, srv, store, n)
	lost := requestinfo.Request{Guard: "orders", Method: http.MethodPost, Path: "/orders", Label: "user-lost", Began: time.Now()}
	put(tb, store, keytext.Record("lost"), lock.Claim{
		Owner: string(lost.AppendTo([]byte("shop-7f:4711"))), Lease: time.Millisecond, Linger: time.Hour,
	})
	put(tb, store, "user=777777", lock.Claim{Owner: "shop-7f:4711", Lease: time.Hour})
	return operatorOf(tb, guardtest.NewLocker(tb, store)), srv, []question{
		{"the console is opened", "", "</html>"},
		{"one page of stored answers", "answers=1", "Stored answer"},
		{"the largest page of stored answers", "answers=1&limit=200", "Stored answer"},
		{"a lock, by its whole key", "q=user%3D777777", "Running, in process 4711 on host shop-7f"},
		{"the one request of unknown outcome, by its label", "q=user-lost", "Outcome unknown: POST /orders of user-lost was begun at "},
		{"the stored answers of one user", "answers=1&q=" + label(n*7/9), "Stored answer"},
		{"a user without any", "q=user-none", `<p class="nothing">Nothing`},
	}
}

// However many answers are stored, a page without a search reads no more than it shows, one that looks for something reads
// each entry once, and a search comes to its end. TestSearchesAnswerWithinASecond bounds the time of a page.
func TestPagesOfManyRecords(t *testing.T) {
	const n = 20_000
	o, srv, questions := consoleOf(t, n)
	for _, q := range questions {
		got := q.follow(o, srv)
		if q.query == "" || strings.Contains(q.query, "q=") {
			// SCAN may list an entry twice, and a whole key is read in addition.
			require.LessOrEqual(t, got.reads, n+n/20, q.what)
			require.LessOrEqual(t, got.scans, n/100, q.what)
			continue
		}
		require.LessOrEqual(t, got.scans, 20, q.what)
		require.LessOrEqual(t, got.reads, 3*200, q.what)
		require.Equal(t, 1, got.pages, q.what)
	}
}

// BenchmarkConsole is each question to its end, over -console.records stored answers. The
// first answer is there in less than a second, and so is every other page.
func BenchmarkConsole(b *testing.B) {
	o, srv, questions := consoleOf(b, *records)
	for _, q := range questions {
		b.Run(q.what, func(b *testing.B) {
			var got answers
			for b.Loop() {
				got = q.follow(operator{b, o.h}, srv)
			}
			require.Less(b, got.slowest, time.Second)
			b.ReportMetric(float64(got.first.Milliseconds()), "first-ms")
			b.ReportMetric(float64(got.slowest.Milliseconds()), "slowest-ms")
			b.ReportMetric(float64(got.pages), "pages")
			b.ReportMetric(float64(got.scans), "scans/page")
			b.ReportMetric(float64(got.reads), "reads/page")
		})
	}
}
