package testmain_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

type tests func() int

func (f tests) Run() int { return f() }

func TestSharedIsMadeOnceAndEndsOnce(t *testing.T) {
	t.Parallel()
	var s testmain.Shared[int]
	made, ended, after := 0, 0, 0
	get := func(tb testing.TB) int {
		return s.Get(tb, "it needs Main", func() (int, func(), error) { made++; return made, func() { ended++ }, nil })
	}
	v := testmain.Judge(t, func(tb testing.TB) { get(tb) })
	require.Equal(t, "it needs Main", v.WhyFailed)

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
			v := testmain.Judge(t, func(tb testing.TB) {
				s.Get(tb, "", func() (int, func(), error) { tried++; return 0, nil, broken })
			})
			require.Equal(t, broken.Error(), v.WhyFailed)
		}
		return 0
	})).Run()
	require.Equal(t, 1, tried)
}

func TestUnavailable(t *testing.T) {
	missing := func(tb testing.TB) { testmain.Unavailable(tb, "install it", errors.New("not found")) }
	t.Setenv("CI", "")
	v := testmain.Judge(t, missing)
	require.Equal(t, "SKIPPED, install it\nnot found", v.WhySkipped)
	require.False(t, v.Failed())
	t.Setenv("CI", "true")
	v = testmain.Judge(t, missing)
	require.Empty(t, v.WhySkipped)
	require.Equal(t, "install it\nnot found", v.WhyFailed)

	testmain.RequireUnavailable(t, missing, "install it", "not found")
	for name, start := range map[string]func(testing.TB){
		"another reason": func(tb testing.TB) { testmain.Unavailable(tb, "build it", errors.New("not found")) },
		"only skipped":   func(tb testing.TB) { tb.Skip("install it: not found") },
		"only failed":    func(tb testing.TB) { tb.Fatal("install it: not found") },
		"there":          func(testing.TB) {},
	} {
		v := testmain.Judge(t, func(tb testing.TB) { testmain.RequireUnavailable(tb, start, "install it") })
		require.NotEmpty(t, v.Errors, name)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	var order []string
	v := testmain.Judge(t, func(tb testing.TB) {
		tb.Cleanup(func() { order = append(order, "first") })
		tb.Cleanup(func() { order = append(order, "last") })
		tb.Errorf("%d", 1)
		tb.FailNow()
		order = append(order, "never")
	})
	require.Equal(t, []string{"last", "first"}, order)
	require.Equal(t, []string{"1"}, v.Errors)
	require.True(t, v.Failed())
	require.False(t, testmain.Judge(t, func(testing.TB) {}).Failed())
}
