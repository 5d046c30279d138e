package policy_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/middleware/policy"
)

// A guard of a file has the file's name for it, in events and in what its records say. A
// lock has the name of its key, which other routes and workers may share.
func TestGuardsHaveTheirNamesOfTheFile(t *testing.T) {
	t.Parallel()
	for guard, want := range map[string]string{"once": "once", "twice": "twice", "one-per-user": "user"} {
		var named []string
		memory := memstore.New()
		l := guardtest.NewLocker(t, memory, lock.WithObserver(func(_ context.Context, e lock.Event) { named = append(named, e.Name) }))
		guards, err := policy.Load(strings.NewReader(mounted), l, offered)
		require.NoError(t, err)
		h := guards.Get(guard)(http.HandlerFunc(guardtest.Created))
		require.Equal(t, http.StatusCreated, guardtest.Serve(h, guardtest.Keyed("k")).Code)
		require.NotEmpty(t, named)
		for _, name := range named {
			require.Equal(t, want, name)
		}
		for e, err := range memory.List(t.Context()) { // a lock leaves nothing
			require.NoError(t, err)
			require.Equal(t, guard, requestinfo.Guard(e.Owner))
		}
	}
}

// A name that WithName would not accept is a mistake in the file. The guard of a lock has its
// name in the file only, so any name will do.
func TestNamesOfTheFileThatDoNotDo(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("x", 65), `a\nb`} {
		_, err := load(t, fmt.Sprintf(`{"%s": {%s}}`, name, anIdempotent))
		require.ErrorContains(t, err, "line 1, column 2: guard ")
		require.ErrorContains(t, err, ": a name has at most 64 bytes of UTF-8, and no control characters")
		_, err = load(t, fmt.Sprintf(`{"%s": {%s}}`, name, aLock))
		require.NoError(t, err)
	}
	_, err := load(t, fmt.Sprintf(`{"%s": {%s}}`, strings.Repeat("x", 64), anIdempotent))
	require.NoError(t, err)
}
