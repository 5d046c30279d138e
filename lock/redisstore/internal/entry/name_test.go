package entry_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
)

func TestNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 201)
	for _, tt := range []struct{ key, want string }{
		{"user=42", "latch:lock:user=42"},
		{lock.Key("order", "7", "eu"), "latch:lock:order=7&eu"},
		{lock.Key("a&b", "c=d~e"), "latch:lock:a~26b=c~3Dd~7Ee"},
		{"A-Z_09./", "latch:lock:A-Z_09./"},
		{"", "latch:lock:"},
		{"ü", "latch:lock:%C3%BC"},
		{"\x00\r\n\x1f\xff", "latch:lock:%00%0D%0A%1F%FF"},
		{"{tag}*?[a]\\", "latch:lock:%7Btag%7D%2A%3F%5Ba%5D%5C"},
		{"100%", "latch:lock:100%25"},
		{"lock:x", "latch:lock:lock%3Ax"},
		{"#", "latch:lock:%23"},
		{"once:abc", "latch:once:abc"},
		{"once:", "latch:once:"},
		{"once:once:", "latch:once:once%3A"},
		{"once", "latch:lock:once"},
		{long[1:], "latch:lock:" + long[1:]},
		{long, "latch:lock:#84a0678c90937f5dcf9994d5866668da6b995109c8ad845410559b48a4ecafed"},
		{"once:" + long, "latch:once:#df3a7f6350ba64a33e19e4f4e166b5536eaba253c0b7c7240e01bddf3119d154"},
	} {
		name, kept := entry.Name("latch:", tt.key)
		require.Equal(t, tt.want, name)
		if strings.Contains(name, ":#") {
			require.Equal(t, tt.key, kept)
		} else {
			require.Empty(t, kept)
		}
	}
}

func TestNamesOfOthersAreNotKeys(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"", "latch", "latch:", "latch:check", "latch:lock", "latch:other:x", "xlatch:lock:x",
		"latch:lock:a b", "latch:lock:%41", "latch:lock:%zz", "latch:lock:%0d", "latch:lock:%0", "latch:lock:%",
		"latch:lock:once%3", "latch:lock:once%3Ax", "latch:lock:#12", "latch:lock:" + strings.Repeat("x", 201),
	} {
		_, ok := entry.KeyOf("latch:", name)
		require.False(t, ok, name)
	}
}

func FuzzName(f *testing.F) {
	f.Add("user=42", "once:user=42")
	f.Add("\x00{}*#%", strings.Repeat("#", 300))
	f.Fuzz(func(t *testing.T, a, b string) {
		nameA, kept := entry.Name("p:", a)
		nameB, _ := entry.Name("p:", b)
		require.Equal(t, a == b, nameA == nameB)
		require.LessOrEqual(t, len(nameA), len("p:lock:")+200)
		key, ok := entry.KeyOf("p:", nameA)
		require.True(t, ok)
		require.Equal(t, a, key+kept, "it is in one of both")
	})
}
