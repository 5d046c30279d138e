package testmain_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testmain"
)

type tests func() int

func (f tests) Run() int { return f() }

// verdict is what became of a test.
type verdict struct {
	testing.TB

	fatal []any
}

func (v *verdict) Helper() {}
func (v *verdict) Fatal(args ...any) {
	v.fatal = args
	runtime.Goexit()
}

func judged(t *testing.T, test func(tb testing.TB)) *verdict {
	v := &verdict{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(v)
	}()
	<-done
	return v
}

func TestSharedIsMadeOnceAndEndsOnce(t *testing.T) {
	t.Parallel()
	var s testmain.Shared[int]
	made, ended, after := 0, 0, 0
	get := func(tb testing.TB) int {
		return s.Get(tb, "it needs Main", func() (int, func(), error) { made++; return made, func() { ended++ }, nil })
	}
	v := judged(t, func(tb testing.TB) { get(tb) })
	require.Equal(t, []any{"it needs Main"}, v.fatal)

	run := testmain.After(s.Main(tests(func() int {
		require.Equal(t, 1, get(t))
		require.Equal(t, 1, get(t))
		require.Zero(t, ended)
		return 7
	})), func() { after = ended })
	require.Equal(t, 7, run.Run())
	require.Equal(t, []int{1, 1, 1}, []int{made, ended, after})

	require.Zero(t, s.Main(tests(func() int { return 0 })).Run(), "nothing was made")
	require.Equal(t, 1, ended)
}

func TestSharedThatCannotBeMadeFailsEveryTest(t *testing.T) {
	t.Parallel()
	var s testmain.Shared[int]
	broken, tried := errors.New("broken"), 0
	s.Main(tests(func() int {
		for range 2 {
			v := judged(t, func(tb testing.TB) {
				s.Get(tb, "", func() (int, func(), error) { tried++; return 0, nil, broken })
			})
			require.Equal(t, []any{broken}, v.fatal)
		}
		return 0
	})).Run()
	require.Equal(t, 1, tried)
}

func TestUnavailable(t *testing.T) {
	t.Setenv("CI", "")
	var skipped bool
	t.Run("skips", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		testmain.Unavailable(t, "nothing is missing: this is a test of tests that lack something", errors.New("not found"))
	})
	require.True(t, skipped)
}
