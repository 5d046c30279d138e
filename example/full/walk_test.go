package main_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
)

// TestWalks follows the quick starts that need a browser, from an empty directory. The others are
// followed in docs/snippets.
func TestWalks(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	pages := must.Get(filepath.Glob("../../docs/walks/*.md"))(t)
	require.NotEmpty(t, pages)
	followed := 0
	for _, page := range pages {
		if !walk.Has(t, page, "browser") {
			continue
		}
		followed++
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			walk.Follow(t, page, map[string]walk.Do{"browser": newOperator(t).do})
		})
	}
	require.NotZero(t, followed)
}

// operator does what a block of a page says to do in a browser.
type operator struct {
	page   *browser.Page
	clicks int // since a page was opened
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	return &operator{page: browser.New(t)}
}

// do does what each line says: open URL; click "the text of a link, button or label"; type "keys";
// see "a part of what the page says", which takes at most three clicks.
func (o *operator) do(tb testing.TB, text string) {
	tb.Helper()
	for line := range strings.Lines(text) {
		verb, object, _ := strings.Cut(strings.TrimSpace(line), " ")
		tb.Log(verb, object)
		if verb == "open" {
			o.clicks = 0
			o.page.Open(object)
			continue
		}
		var quoted string
		require.NoError(tb, json.Unmarshal([]byte(object), &quoted), line)
		switch verb {
		case "click":
			o.click(tb, quoted)
		case "type":
			o.page.Press(strings.Split(quoted, "")...)
		case "see":
			require.LessOrEqual(tb, o.clicks, 3)
			o.page.AwaitText("body", quoted)
		default:
			tb.Fatalf("an operator cannot %q", line)
		}
	}
}

func (o *operator) click(tb testing.TB, text string) {
	tb.Helper()
	o.clicks++
	literal := must.Get(json.Marshal(text))(tb)
	kind := browser.Eval[string](o.page, `(() => {
		const found = [...document.querySelectorAll("a, button, label")].filter(e => e.innerText.trim() === `+string(literal)+`);
		document.querySelectorAll("[data-found]").forEach(e => e.removeAttribute("data-found"));
		if (found.length !== 1) return found.length + " of them: " + document.body.innerText;
		found[0].setAttribute("data-found", "");
		return found[0].localName;
	})()`)
	switch kind {
	case "label":
		o.page.Click("[data-found]")
	case "a", "button":
		o.page.Follow(func() { o.page.Click("[data-found]") })
	default:
		tb.Fatalf("click %q: %s", text, kind)
	}
}

// TestReadme compiles the second program of the README. TestReadmeInstalls of docs/snippets builds the first one.
func TestReadme(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	var programs []string
	for _, b := range walk.Blocks(t, "../../README.md") {
		if b.Language == "go" {
			programs = append(programs, b.Text)
		}
	}
	require.Len(t, programs, 2)
	around := must.Get(os.ReadFile("testdata/readme.go.txt"))(t)
	require.Contains(t, string(around), "\t// SNIPPET\n")
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(around), "\t// SNIPPET\n", programs[1], 1)), 0o600))
	out, err := exec.Command("go", "build", "-o", os.DevNull, file).CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, programs[1])
}
