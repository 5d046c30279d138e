package keytext_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
)

func TestCompose(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, name string
		parts      []string
	}{
		{"user=42", "user", []string{"42"}},
		{"order=7&eu", "order", []string{"7", "eu"}},
		{"order=7~26eu", "order", []string{"7&eu"}},
		{"a~3Db=c~3Dd", "a=b", []string{"c=d"}},
		{"n=~7E26", "n", []string{"~26"}},
		{"n=~1Fa&b", "n", []string{"\x1fa", "b"}},
		{"n=a&&b", "n", []string{"a", "", "b"}},
	} {
		require.Equal(t, c.want, keytext.Compose(c.name, c.parts...))
	}
}

func TestComposeTakesAJoinForItsParts(t *testing.T) {
	t.Parallel()
	for _, parts := range [][]string{{"42"}, {"42", "7"}, {"a&b", "c~d"}, {"\x1f", "="}, {keytext.Join("a", "b"), "c"}} {
		require.Equal(t, keytext.Compose("n", parts...), keytext.Compose("n", keytext.Join(parts...)))
	}
	require.NotEqual(t, keytext.Compose("n", "42&7"), keytext.Compose("n", keytext.Join("42", "7")))
}

func TestName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "user", keytext.Name(keytext.Compose("user", "a=b")))
	require.Equal(t, "a~3Db", keytext.Name(keytext.Compose("a=b", "c")))
	require.Empty(t, keytext.Name("not composed"))
}

// The parts of one text: never none, any bytes but NUL, empty ones too.
func split(s string) []string { return strings.Split(s, "\x00") }

var seeds = [][2]string{
	{"a\x00b", "a&b"},
	{"a\x00b\x00c", "a\x00b&c"},
	{"a\x00", "\x00a"},
	{"~26", "&"},
	{"~7E", "~"},
	{"\x1fa&b", "a\x00b"},
	{"~1F", "\x1f"},
	{"a=b", "a\x00b"},
	{"", "\x00"},
	{"é", "e\u0301"},
	{"\xff\xfe", "\xff\x00\xfe"},
}

func TestRecord(t *testing.T) {
	t.Parallel()
	const want = "once:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
	require.Equal(t, want, keytext.Record("foo"), "records that are in stores are found under it")
}

func FuzzJoin(f *testing.F) {
	for _, s := range seeds {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, p, q string) {
		a, b := split(p), split(q)
		require.Equal(t, slices.Equal(a, b), keytext.Join(a...) == keytext.Join(b...), "%q %q", a, b)
	})
}

func FuzzCompose(f *testing.F) {
	for _, s := range seeds {
		f.Add("n", s[0], "n", s[1])
		f.Add(s[0], "v", s[1], "v")
		f.Add(s[0], s[1], s[1], s[0])
	}
	f.Fuzz(func(t *testing.T, m, p, n, q string) {
		a, b := split(p), split(q)
		if len(a) == 1 && strings.HasPrefix(p, "\x1f") || len(b) == 1 && strings.HasPrefix(q, "\x1f") {
			t.Skip("stands for the parts of a join")
		}
		same := m == n && slices.Equal(a, b)
		require.Equal(t, same, keytext.Compose(m, a...) == keytext.Compose(n, b...), "%q%q %q%q", m, a, n, b)
		if p != "" { // no key function joins a single empty part
			require.Equal(t, same, keytext.Compose(m, keytext.Join(a...)) == keytext.Compose(n, b...), "%q%q %q%q", m, a, n, b)
		}
	})
}
