package browser_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestNoChromiumSkipsButFailsInCI(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts a browser")
	t.Setenv("CHROMIUM", "/nonexistent/chromium")
	start := func(tb testing.TB) { browser.New(tb) }
	testmain.RequireUnavailable(t, start, "apt-get install chromium", "CHROMIUM=", "/nonexistent/chromium")
}

// TestErrorsFail: each of these pages has one mistake that a person would find
// in the console.
func TestErrorsFail(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "starts a browser")
	t.Setenv("TEST_ARTIFACTS", t.TempDir())
	for name, tt := range map[string]struct{ page, want string }{
		"console.error":       {`<script>console.error("broken", 7)</script>`, "broken 7"},
		"exception":           {`<script>nothing.here()</script>`, "nothing is not defined"},
		"rejection":           {`<script>Promise.reject(new Error("unheard"))</script>`, "unheard"},
		"missing image":       {`<img src="/missing.png" alt="">`, "status of 404"},
		"policy is disobeyed": {`<meta http-equiv="Content-Security-Policy" content="script-src 'none'"><script>1</script>`, "Content Security Policy"},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, map[string]string{"/": tt.page})
			v := testmain.Judge(t, func(tb testing.TB) { browser.New(tb).Open(url) })
			require.Empty(t, v.WhyFailed)
			require.Len(t, v.Errors, 1)
			require.Contains(t, v.Errors[0], tt.want)

			v = testmain.Judge(t, func(tb testing.TB) {
				p := browser.New(tb)
				p.Expect(tt.want)
				p.Open(url)
			})
			require.False(t, v.Failed(), v.Errors)
		})
	}
	require.FileExists(t, filepath.Join(os.Getenv("TEST_ARTIFACTS"), "screens", "failed-judged.png"))
}

// TestInput: clicks and keys are the real ones, which go to what a person would
// meet, in their order.
func TestInput(t *testing.T) {
	t.Parallel()
	p := browser.New(t)
	p.Open(serve(t, map[string]string{"/": `
		<div style="height: 3000px"></div>
		<input id="name" value="before"> <button disabled>Save</button> <ul></ul>
		<script>
			const button = document.querySelector("button");
			const log = (e) => document.querySelector("ul").append(e.type + e.detail + (e.isTrusted ? " " : " faked "));
			button.onclick = button.ondblclick = log;
			setTimeout(() => button.disabled = false, 100);
		</script>`}))
	p.Type("#name", "Zoë 7")
	require.Equal(t, "Zoë 7", browser.Eval[string](p, `document.querySelector("#name").value`))
	began := time.Now()
	p.ClickTwice("button", 30*time.Millisecond)
	p.AwaitText("ul", "dblclick2")
	require.Equal(t, "click1 click2 dblclick2", strings.TrimSpace(p.Text("ul")))
	require.GreaterOrEqual(t, time.Since(began), 30*time.Millisecond)
	p.Press(browser.Enter)
	p.AwaitText("ul", "dblclick2 click0")
}
