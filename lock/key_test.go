package lock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestBadKeys(t *testing.T) {
	l := fault.Locker(t, memstore.New())
	for name, k := range map[string]string{"empty": "", "long": string(make([]byte, keytext.MaxBytes+1)), "reserved": "once:1"} {
		_, one := l.Acquire(t.Context(), k)
		_, set := l.AcquireAll(t.Context(), []string{"a", k})
		_, permit := l.AcquireAny(t.Context(), []string{"a", k})
		for _, err := range []error{one, set, permit} {
			require.Error(t, err, name)
			require.NotErrorIs(t, err, lock.ErrUnavailable, name)
		}
	}
	_, err := l.AcquireAll(t.Context(), nil)
	require.Error(t, err)
	_, err = l.AcquireAny(t.Context(), nil)
	require.Error(t, err)
	require.Zero(t, l.Stats().Active)
	e := acquired(t, l, string(make([]byte, keytext.MaxBytes)))
	require.NoError(t, e.Release(t.Context()))
}
