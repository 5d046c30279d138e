package lock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func TestKeyComposesInjectively(t *testing.T) {
	require.Equal(t, "user=42", lock.Key("user", "42"))
	require.Equal(t, "order=7&eu", lock.Key("order", "7", "eu"))
	require.Equal(t, "user=a~26b", lock.Key("user", "a&b"))
	require.NotEqual(t, lock.Key("user", "a", "b"), lock.Key("user", "a&b"))
	require.NotEqual(t, lock.Key("a=b", "c"), lock.Key("a", "b=c"))
}

func TestBadKeys(t *testing.T) {
	l := lock.New(memstore.New())
	for name, k := range map[string]string{"empty": "", "long": string(make([]byte, keytext.MaxBytes+1)), "reserved": "once:1"} {
		t.Run(name, func(t *testing.T) {
			_, err := l.Acquire(t.Context(), k)
			require.Error(t, err)
			require.NotErrorIs(t, err, lock.ErrUnavailable)
		})
	}
	e := acquired(t, l, string(make([]byte, keytext.MaxBytes)))
	require.NoError(t, e.Release(t.Context()))
}
