package mysqlstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/mysqltest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// A COMMIT without an answer was executed or not, which the caller is answered, and a repeat
// confirms.
func TestCommitWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fate      fate
		committed bool
	}{
		"its answer is lost":            {loses, true},
		"the connection ends after it":  {cuts, true},
		"it arrives late":               {delays, false},
		"it never arrives":              {swallows, false},
		"the connection ends before it": {cutsBefore, false},
		"it is answered":                {passes, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := mysqltest.Shared(t)
			s := shopOf(t, server, startProxy(t, server.Addr(), first(tt.fate)).Addr().String())
			l := s.locker(t, lock.WithBudget(time.Second))
			began := time.Now()
			receipt, _, err := l.Once(t.Context(), "k", nil, order("first"))
			t.Logf("%s, %v, after %v", receipt, err, time.Since(began))
			if tt.committed {
				require.NoError(t, err)
				require.Equal(t, []string{"first"}, s.orders(t))
			} else {
				require.ErrorContains(t, err, "all was rolled back")
				require.Empty(t, s.orders(t))
			}
			_, replayed, err := l.Once(t.Context(), "k", nil, order("second"))
			require.NoError(t, err)
			require.Equal(t, tt.committed, replayed)
			time.Sleep(time.Until(began.Add(late + 1500*time.Millisecond))) // the late COMMIT has come
			require.Len(t, s.orders(t), 1)
			s.exec(t, "INSERT INTO orders (name) VALUES ('nothing is locked')")
		})
	}
}

// Without the fence, a look at the receipt says that nothing was committed, and then the COMMIT
// arrives.
func TestTwinWithoutAFence(t *testing.T) {
	t.Parallel()
	server := mysqltest.Shared(t)
	s := shopOf(t, server, startProxy(t, server.Addr(), first(delays)).Addr().String())
	ctx, tx := s.begin(t, "k")
	require.NoError(t, exec(ctx, insert, "first"))
	impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := tx.Settle(impatient, []byte("receipt"), time.Hour)
	require.ErrorContains(t, err, "COMMIT was not answered")
	e, err := s.store.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, lock.Held, e.State, "it looks as if nothing was committed")
	require.Eventually(t, func() bool { return len(s.orders(t)) == 1 }, 20*time.Second, 50*time.Millisecond)
	committed, err := tx.Outcome(t.Context())
	require.NoError(t, err)
	require.True(t, committed)
}

// The server ends a session of the store's own whose COMMIT never arrives, and with it the lock
// of its row.
func TestOwnCommitThatNeverArrives(t *testing.T) {
	t.Parallel()
	testmain.SkipIn(t, testmain.Short, "waits for 30 s")
	server := mysqltest.Shared(t)
	p := startProxy(t, server.Addr(), first(swallows))
	p.commit = "COMMIT"
	s := shopOf(t, server, p.Addr().String())
	claim := lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute, Fenced: true}
	impatient, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := s.store.Claim(impatient, "k", claim)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, lock.ErrNotApplied)
	began := time.Now()
	require.Eventually(t, func() bool {
		_, err := s.store.Claim(t.Context(), "k", claim)
		return err == nil
	}, 60*time.Second, 100*time.Millisecond)
	t.Logf("the key was locked for %v", time.Since(began))
}
