package console_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
)

const many = 10_000

func fill(t *testing.T, s lock.Store) {
	t.Helper()
	var all sync.WaitGroup
	for part := range 20 {
		all.Go(func() {
			for i := part; i < many; i += 20 {
				key := fmt.Sprint("user=", i)
				if _, err := s.Claim(t.Context(), key, lock.Claim{Token: key, Owner: "web-3:4711", Lease: time.Hour}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.False(t, t.Failed())
}

// walk follows the links from page to page, as an operator would, and returns
// how many pages there were and how large the largest was.
func (o operator) walk(query string) (keys map[string]bool, pages, most int) {
	o.t.Helper()
	keys = make(map[string]bool)
	for more := true; more; pages++ {
		all, err := readPage(o.page(query))
		require.NoError(o.t, err)
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

// counted is an inspector whose entries that were read are counted.
type counted struct {
	lock.Store
	read int
}

func (c *counted) List(ctx context.Context) iter.Seq2[lock.Entry, error] {
	return func(yield func(lock.Entry, error) bool) {
		for e, err := range c.Store.(lock.Inspector).List(ctx) {
			c.read++
			if !yield(e, err) {
				return
			}
		}
	}
}

func (*counted) Page(context.Context, string, int, func(string) bool) ([]lock.Entry, string, error) {
	return nil, "", errors.ErrUnsupported
}

func (c *counted) Forget(ctx context.Context, key, token string) (bool, error) {
	return c.Store.(lock.Inspector).Forget(ctx, key, token)
}

// inSteps is one that lists in steps too.
type inSteps struct{ *counted }

func (s inSteps) Page(ctx context.Context, cursor string, limit int, match func(string) bool) ([]lock.Entry, string, error) {
	page, next, err := s.Store.(lock.Inspector).Page(ctx, cursor, limit, match)
	s.read += len(page)
	return page, next, err
}

func TestPagesTenThousand(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "lists 10,000 entries")
	t.Parallel()
	for name, wrap := range map[string]func(*counted) (s lock.Store, bound int){
		"a store with pages":    func(c *counted) (lock.Store, int) { return inSteps{c}, 2 * 50 },
		"a store without pages": func(c *counted) (lock.Store, int) { return c, many },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &counted{Store: memstore.New()}
			store, bound := wrap(c)
			fill(t, store)
			o := operatorOf(t, guardtest.NewLocker(t, store))
			o.page("")
			require.LessOrEqual(t, c.read, bound, "entries read for one page")
			keys, pages, most := o.walk("limit=200")
			require.Len(t, keys, many)
			require.LessOrEqual(t, most, 400)
			require.LessOrEqual(t, pages, many/200+5) // a busy machine ends one that takes a second

			c.read = 0
			keys, _, _ = o.walk("q=user%3D4242")
			require.Equal(t, map[string]bool{"user=4242": true}, keys)
			keys, _, _ = o.walk("q=424&limit=5")
			require.Len(t, keys, 20, "424, 1424 to 9424 and 4240 to 4249")
			require.Contains(t, o.page("after="+url.QueryEscape("no cursor")), "</html>")
		})
	}
}

// commands is how often the server was asked for what since it was last asked
// this.
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

func TestListsAQuorum(t *testing.T) {
	t.Parallel()
	nodes := []lock.Store{memstore.New(), memstore.New(), memstore.New()}
	store := quorum.New(nodes, quorum.WithNodeTimeout(time.Minute)) // not 50 ms: the machine may be busy
	for i := range 300 {
		put(t, store, fmt.Sprint("user=", i), lock.Claim{Lease: time.Hour})
	}
	o := operatorOf(t, guardtest.NewLocker(t, store))
	keys, _, most := o.walk("")
	require.Len(t, keys, 300)
	require.LessOrEqual(t, most, 100)
}
