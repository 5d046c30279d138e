package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// Eval returns the value of a JavaScript expression, which runs even where the
// page's own scripts do not. It fails the test if T cannot hold it.
func Eval[T any](p *Page, expression string) (value T) {
	p.tb.Helper()
	p.must("evaluate "+expression, chromedp.Func(func(ctx context.Context, t *chromedp.Target) (err error) {
		value, err = chromedp.Evaluate[T](expression)(ctx, t)
		return err
	}))
	return value
}

// Await returns when a JavaScript expression has become true.
func (p *Page) Await(expression string) {
	p.tb.Helper()
	p.until("wait for "+expression, func(ctx context.Context) (bool, error) {
		return chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
	})
}

// AwaitText returns when what selector finds first contains part.
func (p *Page) AwaitText(selector, part string) {
	p.tb.Helper()
	p.until(fmt.Sprintf("wait for %q in %s", part, selector), func(ctx context.Context) (bool, error) {
		text, err := chromedp.Run(ctx, chromedp.Evaluate[string](textOf(selector)))
		if err == nil && !strings.Contains(text, part) {
			return false, fmt.Errorf("it is %q", text)
		}
		return err == nil, err
	})
}

// Text is that of what selector finds first, as it is shown; "" without one.
func (p *Page) Text(selector string) string {
	p.tb.Helper()
	return Eval[string](p, textOf(selector))
}

func textOf(selector string) string {
	return `(document.querySelector(` + quoted(selector) + `)?.innerText ?? "")`
}

// Count returns the number of elements that selector finds.
func (p *Page) Count(selector string) int {
	p.tb.Helper()
	return Eval[int](p, `document.querySelectorAll(`+quoted(selector)+`).length`)
}

// quoted is s as a literal of JavaScript.
func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // no string is that strange
	}
	return string(text)
}

// Screenshot scrolls to the top and writes the whole page, however long, to
// screens/<name>.png in $TEST_ARTIFACTS. Without that it goes where the test
// keeps its artifacts, which is nowhere unless go test is given -artifacts.
func (p *Page) Screenshot(name string) {
	p.tb.Helper()
	Eval[bool](p, `(scrollTo({top: 0, behavior: "instant"}), true)`)
	png, err := p.picture()
	if err == nil {
		err = p.write(name, png)
	}
	if err != nil {
		p.tb.Fatalf("browser: screenshot %s: %v", name, err)
	}
}

// ScreenshotView writes what is on the screen, as [Page.Screenshot] does. It works even while
// the page waits for an answer, and cannot be asked how long it is.
func (p *Page) ScreenshotView(name string) {
	p.tb.Helper()
	png, err := p.capture(chromedp.CaptureScreenshot())
	if err == nil {
		err = p.write(name, png)
	}
	if err != nil {
		p.tb.Fatalf("browser: screenshot %s: %v", name, err)
	}
}

func (p *Page) picture() ([]byte, error) {
	return p.capture(chromedp.FullScreenshot(100)) // PNG
}

// capture takes a picture. Of a page that had just been stopped one never came: a picture that is
// late is asked for again.
func (p *Page) capture(picture chromedp.Action[[]byte]) (png []byte, err error) {
	for range 3 {
		if png, err = p.tryCapture(picture); err == nil || p.tab.Err() != nil {
			break
		}
	}
	return png, err
}

// tryCapture brings the page to the front first: Chromium need not draw a tab behind another, and a
// picture waits until the page is drawn.
func (p *Page) tryCapture(picture chromedp.Action[[]byte]) ([]byte, error) {
	ctx, cancel := context.WithTimeout(p.tab, patience/2)
	defer cancel()
	if err := chromedp.Do(ctx, command(page.BringToFront, cdp.Empty{})); err != nil {
		return nil, err
	}
	return chromedp.Run(ctx, picture)
}

func (p *Page) write(name string, png []byte) error {
	dir := os.Getenv("TEST_ARTIFACTS")
	if dir == "" {
		dir = p.tb.ArtifactDir()
	}
	dir = filepath.Join(dir, "screens")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // for readers of a build's screenshots
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644) //nolint:gosec // the same
}
