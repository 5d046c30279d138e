package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// logbook keeps the logged lines.
type logbook struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

func (b *logbook) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Split(strings.TrimSpace(b.out.String()), "\n")
}

func (b *logbook) option() lock.Option {
	return lock.WithLogger(slog.New(slog.NewTextHandler(b, nil)))
}

// A line that an operator must see is logged once, at its level, with advice
// and without the key.
func TestLogLines(t *testing.T) {
	crashed := func(t *testing.T, s *fault.Store) {
		t.Helper()
		crash(t, s, func(context.Context) {})
		time.Sleep(lease)
	}
	for name, tt := range map[string]struct {
		happens func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option)
		want    []string // of the one line
	}{
		"lost": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			t.Helper()
			require.ErrorIs(t, open(log).Do(t.Context(), key, func(ctx context.Context) error {
				s.Free(t, key)
				<-ctx.Done()
				return nil
			}), lock.ErrLost)
		}, []string{"level=ERROR", "lease lost", "name=user", "took or removed", "held=1s", "Compare what was written"}},
		"run lost": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			t.Helper()
			_, _, err := open(log).Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
				s.Free(t, record)
				<-ctx.Done()
				return nil, nil
			})
			require.ErrorIs(t, err, lock.ErrLost)
		}, []string{"level=ERROR", "lease lost", `console="?key=` + record + `"`}},
		"held for too long": {func(t *testing.T, _ *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			t.Helper()
			require.ErrorIs(t, open(log, lock.WithMaxHold(lease)).Do(t.Context(), key, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			}), lock.ErrLost)
		}, []string{"level=ERROR", "lease lost", "maximum of 3s", "WithMaxHold"}},
		"store down": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			t.Helper()
			l := open(log)
			s.Every(fault.Refuse, fault.Claim)
			for range 5 {
				require.ErrorIs(t, l.Do(t.Context(), key, nothing), lock.ErrUnavailable)
			}
		}, []string{"level=ERROR", "did not serve", "class=_OTHER", "repeated=0", "Check the store"}},
		"store denies": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			t.Helper()
			s.Every(denied, fault.Claim)
			require.ErrorIs(t, open(log).Do(t.Context(), key, nothing), lock.ErrDenied)
		}, []string{"level=ERROR", "the store denied a call", "Do what the error says"}},
		"unprotected": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			t.Helper()
			l := open(log, lock.WithFailOpen())
			s.Every(fault.Refuse, fault.Claim)
			for range 5 {
				require.NoError(t, l.Do(t.Context(), key, nothing))
			}
		}, []string{"level=WARN", "work runs unprotected", "name=user", "duplicates"}},
		"abandoned": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			t.Helper()
			crashed(t, s)
			l := open(log)
			for range 5 {
				_, _, err := l.Once(t.Context(), key, print1, nil)
				require.ErrorIs(t, err, lock.ErrAbandoned)
			}
		}, []string{"level=WARN", "holder has vanished", "owner=", "Inspector.Forget", "key_sha256=" + record[len("once:"):len("once:")+16], `console="?key=` + record + `"`}},
		"taken over": {func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker, log lock.Option) {
			t.Helper()
			crashed(t, s)
			_, _, err := open(log, lock.WithRerunAbandoned()).Once(t.Context(), key, print1, (&effect{}).run("again"))
			require.NoError(t, err)
		}, []string{"level=WARN", "runs again", "attempt=2", "took effect twice", `console="?key=` + record + `"`}},
	} {
		bubbleCase(t, name, func(t *testing.T, s *fault.Store, open func(...lock.Option) *lock.Locker) {
			var b logbook
			tt.happens(t, s, open, b.option())
			synctest.Wait()
			var lines []string
			for _, line := range b.lines() {
				require.NotContains(t, line, key)
				require.Contains(t, line, "do=")
				if strings.Contains(line, tt.want[1]) {
					lines = append(lines, line)
				}
			}
			require.Len(t, lines, 1, "%v", b.lines())
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
		var b logbook
		l := open(b.option())
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
			require.Len(t, b.lines(), 16*round)
			all := strings.Join(b.lines()[16*(round-1):], "\n")
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
		var b logbook
		l := open(b.option())
		s.Every(func(context.Context, func() error) error {
			return classified{errors.Join(lock.ErrNotApplied, errors.New("OOM"))}
		}, fault.Claim)
		for range 4 {
			_ = l.Do(t.Context(), key, nothing)
		}
		time.Sleep(time.Minute)
		_ = l.Do(t.Context(), key, nothing)
		lines := b.lines()
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], "repeated=0")
		require.Contains(t, lines[1], "repeated=3")
	})
}

type classified struct{ error }

func (classified) Class() string { return "OOM" }
