package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/journal"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// A line that an operator must see is logged once, at its level, with advice
// and without the key.
func TestLogLines(t *testing.T) {
	crashed := func(t *testing.T, s *fault.Store) {
		crash(t, s, func(context.Context) {})
		time.Sleep(lease)
	}
	for name, tt := range map[string]struct {
		happens func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option)
		want    []string // of the one line
	}{
		"lost": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			require.ErrorIs(t, open(log).Do(t.Context(), key, func(ctx context.Context) error {
				s.Free(t, key)
				<-ctx.Done()
				return nil
			}), lock.ErrLost)
		}, []string{"level=ERROR", "lease lost", "name=user", "took or removed", "held=1s", "Compare what was written"}},
		"run lost": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			_, _, err := open(log).Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				s.Free(t, record)
				<-ctx.Done()
				return nil, context.Cause(ctx)
			})
			require.ErrorIs(t, err, lock.ErrLost)
		}, []string{"level=ERROR", "lease lost", `console="?key=` + record + `"`}},
		"run forgotten": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			_, _, err := open(log).Once(t.Context(), key, print1, func(context.Context) ([]byte, error) { s.Free(t, record); return nil, nil })
			require.NoError(t, err)
		}, []string{"level=WARN", "lost the entry", "evicted", `console="?key=` + record + `"`}},
		"held for too long": {func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			require.ErrorIs(t, open(log, lock.WithMaxHold(lease)).Do(t.Context(), key, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			}), lock.ErrLost)
		}, []string{"level=ERROR", "lease lost", "maximum of 3s", "WithMaxHold"}},
		"store down": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			l := open(log)
			s.Every(fault.Refuse, fault.Claim)
			for range 5 {
				require.ErrorIs(t, l.Do(t.Context(), key, nothing), lock.ErrUnavailable)
			}
		}, []string{"level=ERROR", "did not serve", "class=_OTHER", "repeated=0", "Check the store"}},
		"store denies": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			s.Every(denied, fault.Claim)
			require.ErrorIs(t, open(log).Do(t.Context(), key, nothing), lock.ErrDenied)
		}, []string{"level=ERROR", "the store denied a call", "Do what the error says"}},
		"unprotected": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			l := open(log, lock.WithFailOpen())
			s.Every(fault.Refuse, fault.Claim)
			for range 5 {
				require.NoError(t, l.Do(t.Context(), key, nothing))
			}
		}, []string{"level=WARN", "work runs unprotected", "name=user", "duplicates"}},
		"abandoned": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			crashed(t, s)
			l := open(log)
			for range 5 {
				require.ErrorIs(t, ask(t, l, print1), lock.ErrAbandoned)
			}
		}, []string{"level=WARN", "holder has vanished", "owner=", "Inspector.Forget", "key_sha256=" + record[len("once:"):len("once:")+16], `console="?key=` + record + `"`}},
		"taken over": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			crashed(t, s)
			must.Run(t)(open(log, lock.WithRerunAbandoned()).Once(t.Context(), key, print1, (&effect{}).run("again")))
		}, []string{"level=WARN", "runs again", "attempt=2", "took effect twice", `console="?key=` + record + `"`}},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var b journal.Journal
			tt.happens(t, s, open, lock.WithLogger(b.Logger()))
			synctest.Wait()
			var lines []string
			for _, line := range b.Lines() {
				require.NotContains(t, line, key)
				require.Contains(t, line, "do=")
				if strings.Contains(line, tt.want[1]) {
					lines = append(lines, line)
				}
			}
			require.Len(t, lines, 1, "%v", b.Lines())
			for _, text := range tt.want {
				require.Contains(t, lines[0], text)
			}
		})
	}
}

// Each of several keys whose holders have vanished has its line, and a great many have 16 a
// minute.
func TestRefusedKeysAreLoggedApart(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		keys := make([]string, 500)
		for i := range keys {
			keys[i] = fmt.Sprint("job=", i)
			must.Entry(t)(s.Claim(t.Context(), keytext.Record(keys[i]), lock.Claim{Token: "t", Lease: time.Second, Linger: time.Hour}))
		}
		time.Sleep(2 * time.Second)
		var b journal.Journal
		l := open(lock.WithLogger(b.Logger()))
		for round := 1; round <= 2; round++ {
			first := make(map[byte]string) // of the keys whose hash begins with a digit
			for _, k := range keys {
				_, _, err := l.Once(t.Context(), k, nil, nil)
				require.ErrorIs(t, err, lock.ErrAbandoned)
				if record := keytext.Record(k); first[record[len("once:")]] == "" {
					first[record[len("once:")]] = record
				}
			}
			require.Len(t, first, 16)
			require.Len(t, b.Lines(), 16*round)
			all := strings.Join(b.Lines()[16*(round-1):], "\n")
			for _, record := range first {
				require.Contains(t, all, `console="?key=`+record+`"`)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A line that was held back is counted in the next one of its class.
func TestRepetitionsAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
		var b journal.Journal
		l := open(lock.WithLogger(b.Logger()))
		s.Every(func(context.Context, func() error) error {
			return namedError{errors.Join(lock.ErrNotApplied, errors.New("OOM"))}
		}, fault.Claim)
		for range 4 {
			_ = l.Do(t.Context(), key, nothing)
		}
		time.Sleep(time.Minute)
		_ = l.Do(t.Context(), key, nothing)
		lines := b.Lines()
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], "repeated=0")
		require.Contains(t, lines[1], "repeated=3")
	})
}
