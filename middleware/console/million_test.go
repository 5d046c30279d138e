package console_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/about"
	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/redistest"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	"github.com/httplatch/httplatch/middleware/internal/guardtest"
)

var records = flag.Int("console.records", 0, "how many records TestConsoleOfMany looks through; 0: it is skipped")

func label(i int) string { return fmt.Sprintf("user-%07d", i) }

// fillRecords leaves n stored answers, of as many users. The first is stored by a guard, and
// the others are copies of it with the label of another user, since a million requests take
// minutes.
func fillRecords(t *testing.T, srv *redistest.Server, store lock.Store, n int) {
	t.Helper()
	l := guardtest.NewLocker(t, store)
	require.Equal(t, http.StatusCreated, keyed(t, l, label(0), "k", guardtest.Created, latch.WithName("orders")).Code)
	names := srv.Keys(t, "*")
	require.Len(t, names, 1)
	value, ok := srv.Do(t, "GET", names[0]).(string)
	require.True(t, ok)
	require.Equal(t, 1, strings.Count(value, label(0)))
	prefix, _, ok := strings.Cut(names[0], keytext.RecordPrefix)
	require.True(t, ok)

	client := srv.Client(t)
	const batch = 1000
	for from := 1; from < n; from += batch {
		_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := from; i < min(from+batch, n); i++ {
				hash := sha256.Sum256([]byte(label(i)))
				p.Set(t.Context(), prefix+keytext.RecordPrefix+hex.EncodeToString(hash[:]), strings.Replace(value, label(0), label(i), 1), 24*time.Hour)
			}
			return nil
		})
		require.NoError(t, err)
	}
}

// asked is what an operator asks, and what the console makes of it.
type asked struct {
	what, query   string
	found         string // in the last page
	pages         int
	first         time.Duration
	slowest, took time.Duration
	scans, reads  int // of the page with the most
}

// follow goes on until there is a result, or all is looked through.
func (a *asked) follow(o operator, srv *redistest.Server) {
	o.t.Helper()
	for query := a.query; ; {
		commands(o.t, srv)
		began := time.Now()
		w := o.ask(http.MethodGet, query, "", browserAccept)
		took := time.Since(began)
		require.Equal(o.t, http.StatusOK, w.Code)
		calls := commands(o.t, srv)
		if a.pages == 0 {
			a.first = took
		}
		a.pages++
		a.slowest, a.took = max(a.slowest, took), a.took+took
		a.scans, a.reads = max(a.scans, calls["scan"]), max(a.reads, calls["get"])
		next, goesOn := strings.CutPrefix(w.Header().Get("Refresh"), "0; url=?")
		if !goesOn {
			require.Contains(o.t, w.Body.String(), a.found, a.what)
			return
		}
		query = next
	}
}

// A million records: the first answer is there in less than a second, a page without a
// search reads no more than it shows, and a search comes to its end.
func TestConsoleOfMany(t *testing.T) {
	if *records == 0 {
		t.Skip("SKIPPED: make bench-console looks through a million records")
	}
	srv := redistest.Start(t)
	store := guardtest.OpenRedis(t, srv.URL())
	began := time.Now()
	fillRecords(t, srv, store, *records)
	lost := about.Request{Guard: "orders", Method: http.MethodPost, Path: "/orders", Label: "user-lost", Began: time.Now()}
	put(t, store, keytext.Record("lost"), lock.Claim{
		Owner: string(lost.AppendTo([]byte("shop-7f:4711"))), Lease: time.Millisecond, Linger: time.Hour,
	})
	put(t, store, "user=777777", lock.Claim{Owner: "shop-7f:4711", Lease: time.Hour})
	t.Logf("%d records after %v, %v", *records, time.Since(began).Round(time.Second), srv.Do(t, "DBSIZE"))

	o := operatorOf(t, guardtest.NewLocker(t, store))
	one := label(*records * 7 / 9)
	questions := []*asked{
		{what: "the console is opened", query: "", found: "</html>"},
		{what: "one page of answers", query: "answers=1", found: "Stored answer"},
		{what: "the largest page of answers", query: "answers=1&limit=200", found: "Stored answer"},
		{what: "a lock, by its whole key", query: "q=user%3D777777", found: "held by process 4711 on host shop-7f"},
		{what: "the one request of unknown outcome, by its label", query: "q=user-lost", found: "Outcome unknown: POST /orders of user-lost was begun at "},
		{what: "the answers of one user", query: "answers=1&q=" + one, found: "Stored answer"},
		{what: "a user without any", query: "q=user-none", found: "Nothing more."},
	}
	table := fmt.Sprintf("| %d records: what is asked | first answer | slowest page | pages | all | SCAN a page | reads a page |\n|---|---|---|---|---|---|---|\n", *records)
	for _, q := range questions {
		q.follow(o, srv)
		table += fmt.Sprintf("| %s | %d ms | %d ms | %d | %.1f s | %d | %d |\n",
			q.what, q.first.Milliseconds(), q.slowest.Milliseconds(), q.pages, q.took.Seconds(), q.scans, q.reads)
	}
	t.Log("\n" + table)
	if dir := os.Getenv("TEST_ARTIFACTS"); dir != "" {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "console.txt"), []byte(table), 0o644))
	}
	for _, q := range questions {
		require.Less(t, q.slowest, time.Second, q.what)
		if !strings.Contains(q.query, "q=") && q.query != "" {
			require.LessOrEqual(t, q.scans, 20, q.what)
			require.LessOrEqual(t, q.reads, 3*200, q.what)
		}
	}
}
