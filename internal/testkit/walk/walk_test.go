package walk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
)

// follow returns how the walk along a page ended. In text, ~ stands for the fence of a block.
func follow(t *testing.T, text string, others map[string]walk.Do) *testmain.Verdict {
	t.Helper()
	testmain.SkipIn(t, testmain.Quick, "starts shells")
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte(strings.ReplaceAll(text, "~", "```")), 0o600))
	return testmain.Judge(t, func(tb testing.TB) { walk.Follow(tb, page, others) })
}

func TestFollow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ page, fails string }{
		"no steps":              {page: "Nothing to do.\n"},
		"a command":             {page: "~console\n$ echo a b\na b\n~\n"},
		"more is printed":       {page: "~console\n$ echo a; echo b; echo c\na\nc\n~\n"},
		"no newline at the end": {page: "~console\n$ printf a\na\n$ echo b\nb\n~\n"},
		"how long it took":      {page: "~console\n$ echo 'ok 1.25s'\nok 0.3s\n~\n"},
		"what is left out":      {page: "~console\n$ echo id=4711.\nid=....\n~\n"},
		"a long command":        {page: "~console\n$ echo a \\\n  b\na b\n~\n"},
		"one shell":             {page: "~console\n$ mkdir d\n$ cd d\n$ X=1\n~\nThen `f.txt`:\n~text\nhere\n~\n~console\n$ cat ../d/f.txt; echo $X\nhere\n1\n~\n"},
		"nothing to read":       {page: "~console\n$ cat | wc -c\n0\n~\n"},
		"a failure":             {page: "~console\n$ echo FAIL; false\nFAIL\n~\n"},
		"a file again":          {page: "A `f.txt`:\n~text\nold\n~\nNow `f.txt`:\n~text\nnew\n~\n~console\n$ cat f.txt\nnew\n~\n"},
		"in the background":     {page: "~console\n$ (sleep 0.2; echo late) &\n$ echo here\nhere\nlate\n~\n"},
		"shown when begun":      {page: "~console\n$ (sleep 0.2; echo ready; sleep 99) &\nready\n$ kill %1\n~\n"},
		"its servers":           {page: "~sh\nexport REDIS_URL=redis://localhost:6379\n~\n~console\n$ echo $REDIS_URL\nredis://127.0.0.1:...\n~\n"},

		"not printed":           {page: "\n~console\n$ echo a\nb\n~\n", fails: `page.md:3: $ echo a` + "\n" + `has not printed "b" here, but` + "\na"},
		"a part of a line":      {page: "~console\n$ echo ab\na\n~\n", fails: `has not printed "a"`},
		"more than a dot":       {page: "~console\n$ echo axb\na.b\n~\n", fails: `has not printed "a.b"`},
		"another order":         {page: "~console\n$ echo a; echo b\nb\na\n~\n", fails: `has not printed "a"`},
		"once, and shown twice": {page: "~console\n$ echo a\na\na\n~\n", fails: `has not printed "a"`},
		"printed before":        {page: "~console\n$ echo a; echo b\na\n$ true\nb\n~\n", fails: `has not printed "b"`},
		"fails":                 {page: "~console\n$ echo a; false\na\n~\n", fails: "has exit status 1, and printed\na"},
		"does not fail":         {page: "~console\n$ echo FAIL\nFAIL\n~\n", fails: "has exit status 0"},
		"has no such server":    {page: "~sh\nexport MYSQL_URL=mysql://localhost\n~\n", fails: "no walk has a server for MYSQL_URL"},
		"sets no variable":      {page: "~sh\nls\n~\n", fails: "a block of sh has lines"},
		"its own server":        {page: "~console\n$ echo $REDIS_URL\nredis://...\n~\n", fails: "has not printed"},
		"no command":            {page: "~console\na\n~\n", fails: `page.md:1: no command`},
		"which file":            {page: "A file:\n~go\npackage main\n~\n", fails: `page.md:2: which file is this? The line before says "A file:"`},
		"no such directory":     {page: "Now `d/f.txt`:\n~text\nhere\n~\n", fails: "walk: write d/f.txt: "},
		"no end":                {page: "~console\n$ ls\n", fails: `page.md:1: a block does not end`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := follow(t, test.page, nil)
			require.Contains(t, v.WhyFailed, test.fails)
			require.Equal(t, test.fails == "", !v.Failed(), v.WhyFailed)
		})
	}
}

// TestPortsOfOthers are not of the page.
func TestPortsOfOthers(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"8081", "8082"}, walk.Ports("localhost:8081 mylocalhost:1 127.0.0.1:2 localhost:8082/a localhost:8081"))
}

// TestProgramIsMissing: the walk is skipped, unless everything has to be there.
func TestProgramIsMissing(t *testing.T) { //nolint:paralleltest // it sets PATH
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CI", "false")
	require.Contains(t, follow(t, "~console\n$ ls | psql -c 'SELECT 1'\n~\n", nil).WhySkipped, "psql is not installed")
	t.Setenv("CI", "true")
	require.Contains(t, follow(t, "~console\n$ curl localhost\n~\n", nil).WhyFailed, "curl is not installed")
}
