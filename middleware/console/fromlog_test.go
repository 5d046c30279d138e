package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

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
		whole, err := url.ParseQuery(query)
		require.NoError(t, err)
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

// The line of a lost lock, which has no key, leads an operator who may use the console to
// the key: in the process that lost it whatever the store has by now, and in any other to
// the entry of the holder who has it since.
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
					_, err = memory.Forget(ctx, e.Key, e.Token)
					require.NoError(t, err)
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
