package faults_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/lock"
)

// syncBuffer is a log that requests write to at the same time.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Every refusal is answered within the budget, logged once and not per
// request, and over as soon as the server serves again.
func TestServerRefusals(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		"OOM command not allowed when used memory > 'maxmemory'.",
		"READONLY You can't write against a read only replica.",
		"LOADING Redis is loading the dataset in memory",
		"NOPERM this user has no permissions to run the 'set' command",
		"NOAUTH Authentication required.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"MOVED 1234 127.0.0.1:1",
		"WRONGTYPE Operation against a key holding the wrong kind of value",
		"upstream failure",
	} {
		class, _, _ := strings.Cut(refusal, " ")
		if class == "upstream" {
			class = "reply"
		}
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			p, server, store := setups[1].start(t)
			var out syncBuffer
			l := locker(t, store, lock.WithLogger(slog.New(slog.NewTextHandler(&out, nil))))
			d := newDesk(t, perUser(l))
			p.On(respproxy.Match{Name: claims}, respproxy.ReplyError(refusal))
			if class == "OOM" || class == "MISCONF" {
				p.On(respproxy.Match{Name: "eval|evalsha"}, respproxy.ReplyError(refusal))
			}
			until(t, func() bool { // of unknown outcome, if the last of its sends was not answered in time
				_, err := l.Acquire(t.Context(), "user=direct")
				require.ErrorIs(t, err, lock.ErrUnavailable)
				return isUnknown(err) == (class == "reply")
			})

			var wg sync.WaitGroup
			for range 5 {
				wg.Go(func() {
					a := d.order(t, "42", 0)
					// Of five at once, one asks the store and four meet that claim in the process.
					if a.status != http.StatusServiceUnavailable && a.status != http.StatusConflict {
						t.Errorf("answered %d", a.status)
					}
					if a.took > budget+slack {
						t.Errorf("answered after %v", a.took)
					}
				})
			}
			wg.Wait()
			require.Equal(t, 1, strings.Count(out.String(), "class="+class), out.String())
			p.Clear()
			require.NoError(t, d.within(t, "42", time.Now().Add(budget), true))
			require.NoError(t, left(t, server, soon))
		})
	}
}
