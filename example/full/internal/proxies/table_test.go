package proxies_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// intent is an order that a client has to place.
type intent struct {
	request

	client       string
	got          word
	orders, runs int
}

func (i intent) String() string {
	return fmt.Sprintf("%s: %d runs, %d orders, and the client has %d %.120s", i.key, i.runs, i.orders, i.got.status, strings.Join(strings.Fields(i.got.text), " "))
}

// row has the orders that clients placed behind a proxy during a fault.
type row struct {
	proxy string
	fault fault

	mu      sync.Mutex
	intents []intent
}

func (r *row) note(i intent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.intents = append(r.intents, i)
}

func (r *row) where(f func(i intent) bool) (some []intent) {
	for _, i := range r.intents {
		if f(i) {
			some = append(some, i)
		}
	}
	return some
}

func (i intent) created() bool { return i.got.status == http.StatusCreated }

func (r *row) placed() int  { return len(r.where(func(i intent) bool { return i.orders > 0 })) }
func (r *row) doubled() int { return len(r.where(func(i intent) bool { return i.orders > 1 })) }
func (r *row) again() int   { return len(r.where(func(i intent) bool { return i.runs > 1 })) }

// invented are answers 201 without an order.
func (r *row) invented() int {
	return len(r.where(func(i intent) bool { return i.orders == 0 && i.created() }))
}

// wrong are orders whose client has another last answer. refused are intents without an order and
// without its answer.
func (r *row) wrong() []intent {
	return r.where(func(i intent) bool { return i.orders > 0 && !i.created() })
}

func (r *row) refused() []intent {
	return r.where(func(i intent) bool { return i.orders == 0 && !i.created() })
}

// String is the row of the table, and each order whose client has another answer.
func (r *row) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %d | %d |\n",
		r.proxy, r.fault.name, len(r.intents), r.placed(), r.again(), r.doubled(), r.invented(), len(r.wrong()), len(r.refused()))
	for _, i := range slices.Concat(r.wrong(), r.refused()) {
		fmt.Fprintf(&b, "  %v\n", i)
	}
	return b.String()
}

// table has the rows of all proxies.
type table struct {
	mu   sync.Mutex
	rows []*row
}

func (a *table) add(r *row) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows = append(a.rows, r)
}

// write leaves the table where tests leave their reports.
func (a *table) write(t *testing.T) {
	t.Helper()
	slices.SortStableFunc(a.rows, func(x, y *row) int { return strings.Compare(x.proxy, y.proxy) })
	var b strings.Builder
	b.WriteString("Orders with keys behind proxies:\n\n")
	b.WriteString("| proxy | fault | intents | orders | ran again | doubled | 201, no order | order, another last answer | no order, another answer |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range a.rows {
		b.WriteString(r.String())
	}
	t.Log("\n" + b.String())
	if dir := os.Getenv("TEST_ARTIFACTS"); dir != "" {
		require.NoError(t, os.MkdirAll(dir, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "proxies.txt"), []byte(b.String()), 0o600))
	}
}
