package keyfunc_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
)

func joined(t *testing.T, parts ...string) string {
	t.Helper()
	fs := make([]keyfunc.Func, len(parts))
	for i, p := range parts {
		fs[i] = constant(p)
	}
	return must.Get(keyfunc.Join(fs...)(get("/")))(t)
}

func TestJoin(t *testing.T) {
	t.Parallel()
	distinct := map[string]string{}
	for name, k := range map[string]string{
		"a,b":      joined(t, "a", "b"),
		"b,a":      joined(t, "b", "a"),
		"a":        joined(t, "a"),
		"a&b":      joined(t, "a&b"),
		"a~26b":    joined(t, "a~26b"),
		"a,b,c":    joined(t, "a", "b", "c"),
		"(a,b),c":  joined(t, joined(t, "a", "b"), "c"),
		"a,(b,c)":  joined(t, "a", joined(t, "b", "c")),
		"((a,b))":  joined(t, joined(t, "a", "b")),
		"single a": "a", "single a&b": "a&b", "single a~26b": "a~26b",
	} {
		require.NotContains(t, distinct, k, "%s and %s", name, distinct[k])
		distinct[k] = name
	}
}

func TestJoinHandsOnTheFirstError(t *testing.T) {
	t.Parallel()
	never := keyfunc.Func(func(*http.Request) (string, error) {
		t.Error("called behind an error")
		return "", nil
	})
	other := errors.New("other")
	for _, err := range []error{keyfunc.ErrSkip, keyfunc.ErrMissing, other, &keyfunc.Error{Status: 451, Err: other}} {
		k, got := keyfunc.Join(constant("a"), failing(err), never)(get("/"))
		require.Empty(t, k)
		require.Same(t, err, got)
	}
	missing("keyfunc: part 2 of Join is missing; its function returned an empty key").
		check(t, keyfunc.Join(constant("a"), constant(""), never), get("/"))
}

func TestJoinKeepsItsOwnList(t *testing.T) {
	t.Parallel()
	fs := []keyfunc.Func{constant("a"), constant("b")}
	f := keyfunc.Join(fs...)
	fs[0] = constant("changed")
	key(joined(t, "a", "b")).check(t, f, get("/"))
}

func TestHash(t *testing.T) {
	t.Parallel()
	key(fmt.Sprintf("%x", sha256.Sum256([]byte("42")))).check(t, keyfunc.Hash(constant("42")), get("/"))

	a := must.Get(keyfunc.Hash(constant("42&7"))(get("/")))(t)
	b := must.Get(keyfunc.Hash(keyfunc.Join(constant("42"), constant("7")))(get("/")))(t)
	require.NotEqual(t, a, b)
	require.Len(t, b, 64)

	missing("keyfunc: the key to Hash is missing").check(t, keyfunc.Hash(constant("")), get("/"))
	_, err := keyfunc.Hash(failing(keyfunc.ErrSkip))(get("/"))
	require.ErrorIs(t, err, keyfunc.ErrSkip)
}

func TestOptional(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	for _, c := range []struct {
		f    keyfunc.Func
		want error
	}{
		{constant("42"), nil},
		{constant(""), keyfunc.ErrSkip},
		{failing(keyfunc.ErrMissing), keyfunc.ErrSkip},
		{keyfunc.Header("X-User-ID"), keyfunc.ErrSkip},
		{keyfunc.Join(constant("a"), keyfunc.Query("id")), keyfunc.ErrSkip},
		{keyfunc.Hash(constant("")), keyfunc.ErrSkip},
		{failing(keyfunc.ErrSkip), keyfunc.ErrSkip},
		{failing(other), other},
	} {
		k, err := keyfunc.Optional(c.f)(get("/"))
		require.Equal(t, c.want, err)
		require.Equal(t, err == nil, k == "42")
	}

	// Malformed is not missing.
	refused(400, "sent twice").check(t, keyfunc.Optional(keyfunc.Query("id")), get("/?id=1&id=2"))
}

func TestMisusePanics(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]func(){
		"keyfunc.Join: no functions":                                func() { keyfunc.Join() },
		"keyfunc.Join: part 2 of Join is nil":                       func() { keyfunc.Join(keyfunc.Global, nil) },
		"keyfunc.Hash: nil function":                                func() { keyfunc.Hash(nil) },
		"keyfunc.Optional: nil function":                            func() { keyfunc.Optional(nil) },
		"keyfunc.Context: nil function":                             func() { keyfunc.Context(nil) },
		"keyfunc.Query: empty name":                                 func() { keyfunc.Query("") },
		"keyfunc.Form: empty name":                                  func() { keyfunc.Form("") },
		"keyfunc.PathValue: empty name":                             func() { keyfunc.PathValue("") },
		"keyfunc.Header: empty name":                                func() { keyfunc.Header("") },
		"keyfunc.Header: X User cannot be the name of a header":     func() { keyfunc.Header("X User") },
		"keyfunc.Header: X-User\r\n cannot be the name of a header": func() { keyfunc.Header("X-User\r\n") },
		"keyfunc.Header: Host is never among the headers; write a Func that reads Request.Host": func() { keyfunc.Header("host") },
		"keyfunc.JSON: empty name":                                                      func() { keyfunc.JSON("") },
		"keyfunc.JSON: id does not start with a slash; write /id":                       func() { keyfunc.JSON("id") },
		"keyfunc.JSON: the pointer is not valid UTF-8":                                  func() { keyfunc.JSON("/a\xff") },
		`keyfunc.JSON: in /a~b a "~" is followed by neither 0 nor 1; write "~0" for it`: func() { keyfunc.JSON("/a~b") },
		"keyfunc.Each: empty name":                                                      func() { keyfunc.Each("") },
		`keyfunc.Each: /items/sku has no "*"; for one value use JSON`:                   func() { keyfunc.Each("/items/sku") },
	} {
		require.PanicsWithValue(t, want, f)
	}
	require.NotPanics(t, func() { keyfunc.Header("!#$%&'*+-.^_`|~09azAZ") })
}

var joinSeeds = [][2]string{
	{"a\x00b", "a&b"},
	{"a\x00b\x00c", "a\x00b&c"},
	{"a~26b", "a&b"},
	{"\x1fa&b", "a\x00b"},
	{"\x1fa&b\x00c", "a\x00b\x00c"},
	{"~1F", "\x1f"},
	{"~", "~7E"},
	{"42\x007", "4\x0027"},
	{"\xff", "\xff\x00\xfe"},
}

// FuzzJoin splits its arguments at NULs into parts and checks that two joins
// meet each other, or a key of a single value, only if they are equal.
func FuzzJoin(f *testing.F) {
	for _, s := range joinSeeds {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, p, q string) {
		a, b := split(p), split(q)
		if len(a) == 0 || len(b) == 0 {
			t.Skip("nothing to join")
		}
		ja, jb := joined(t, a...), joined(t, b...)
		require.Equal(t, slices.Equal(a, b), ja == jb, "%q %q", a, b)
		require.Equal(t, slices.Equal(a, b), keytext.Compose("n", ja) == keytext.Compose("n", jb), "%q %q", a, b)

		// A single value, as the functions of this package let it pass.
		if value, err := keyfunc.Context(func(context.Context) string { return q })(get("/")); err == nil {
			require.NotEqual(t, ja, value)
			single := len(a) == 1 && a[0] == value
			require.Equal(t, single, keytext.Compose("n", ja) == keytext.Compose("n", value), "%q %q", a, value)
		}
		// A join as a part is one part.
		nested := joined(t, append([]string{ja}, b...)...)
		require.NotEqual(t, joined(t, append(slices.Clone(a), b...)...), nested)
	})
}

func split(s string) []string {
	return slices.DeleteFunc(strings.Split(s, "\x00"), func(part string) bool { return part == "" })
}
