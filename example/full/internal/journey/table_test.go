package journey_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// table has the results of all rows: one line for each guard and client, over all stores.
type table struct {
	mu  sync.Mutex
	all map[line]map[string]figures // by store
}

type line struct{ guard, client string }

func (a *table) add(r row, f figures) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := line{r.guard.name, r.sender.name}
	if a.all[l] == nil {
		a.all[l] = map[string]figures{}
	}
	a.all[l][r.store] = f
}

// lines are those of the table, in the order of guards and clients.
func lines() (all []line) {
	for _, g := range guards {
		for _, c := range keyed {
			all = append(all, line{g.name, c.name})
		}
		if g.name == onOrders {
			all = append(all, line{g.name, curlOnce.name})
		}
	}
	for _, c := range keyless {
		all = append(all, line{withoutKey.name, c.name})
	}
	return all
}

func (l line) String() string { return fmt.Sprintf("| %s | %s |", l.guard, l.client) }

// String is the table of docs/evidence/journey.md.
func (a *table) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var b strings.Builder
	b.WriteString("| guard | client | cuts | orders doubled: memory, Redis, PostgreSQL | callers with the first answer |\n")
	b.WriteString("|---|---|---|---|---|\n")
	for _, l := range lines() {
		var sum figures
		var doubled []string
		for _, s := range stores {
			f, ok := a.all[l][s.name]
			if !ok {
				doubled = append(doubled, "not run")
				continue
			}
			sum = sum.plus(f)
			doubled = append(doubled, grouped(f.doubled))
		}
		first := grouped(sum.first)
		if sum.first == sum.cuts {
			first = "all"
		}
		fmt.Fprintf(&b, "%v %s | %s | %s |\n", l, grouped(sum.cuts), strings.Join(doubled, ", "), first)
	}
	return b.String()
}

// grouped is n with a comma before the last three digits.
func grouped(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// write leaves the table where tests leave their reports.
func (a *table) write(t *testing.T) {
	t.Helper()
	text := "Orders by clients whose connection is cut once:\n\n" + a.String()
	t.Log("\n" + text)
	if dir := os.Getenv("TEST_ARTIFACTS"); dir != "" {
		require.NoError(t, os.MkdirAll(dir, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "journey.txt"), []byte(text), 0o600))
	}
	if *every == 1 && !t.Failed() {
		require.NoError(t, os.WriteFile(page, []byte(preface+a.String()), 0o644))
	}
}

const page, preface = "../../../../docs/evidence/journey.md", "Written by `make journey`:\n\n# Orders over cut connections\n\n" +
	"Each intent is an order whose connection is cut once, after each byte of the request and of its answer. *doubled*: two orders exist. *the first\n" +
	"answer*: status, `Location` and body are those of the order that exists, and one more repeat gets the same bytes.\n\n"
