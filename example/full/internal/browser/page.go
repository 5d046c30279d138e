package browser

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience is the longest time of a step, on a machine with other things to do.
const patience = 30 * time.Second

// Page is a tab in a separate profile. It ends with its test.
type Page struct {
	tb       testing.TB
	tab      context.Context //nolint:containedctx // chromedp names a tab by it
	console  iter.Seq2[chromedp.ConsoleMessage, error]
	silence  context.CancelFunc // ends console
	expected []string
	settings settings
	finished bool
}

// Option changes a [Page], which otherwise has 1280 by 800 pixels, light colours and JavaScript.
type Option func(*settings)

type settings struct {
	width, height int64
	scheme        string
	noScript      bool
}

// Size sets the size of the page, in CSS pixels.
func Size(width, height int64) Option {
	return func(s *settings) { s.width, s.height = width, height }
}

// Dark is for users who prefer dark colours.
func Dark() Option { return func(s *settings) { s.scheme = "dark" } }

// NoScript is for users without JavaScript.
func NoScript() Option { return func(s *settings) { s.noScript = true } }

// New opens an empty page.
func New(tb testing.TB, opts ...Option) *Page {
	tb.Helper()
	s := settings{width: 1280, height: 800, scheme: "light"}
	for _, o := range opts {
		o(&s)
	}
	tab, end := chromedp.NewContext(chromium(tb), chromedp.WithNewBrowserContext())
	tb.Cleanup(end)
	return start(tab, tb, s)
}

// start makes a Page of a tab.
func start(tab context.Context, tb testing.TB, s settings) *Page {
	tb.Helper()
	listening, silence := context.WithCancel(tab)
	tb.Cleanup(silence)
	p := &Page{tb: tb, tab: tab, settings: s, console: chromedp.Console(listening), silence: silence}
	// Motion is off: what is looked at should have arrived.
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: s.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}
	p.must("set up the page",
		chromedp.EmulateViewport(s.width, s.height),
		command(emulation.SetEmulatedMedia, media),
		command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: s.noScript}))
	tb.Cleanup(p.finish)
	return p
}

// command is one of the DevTools protocol whose answer does not matter.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// must does the steps within the patience, or fails the test.
func (p *Page) must(what string, steps ...chromedp.Action[chromedp.Void]) {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(p.tab, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.tb.Fatalf("browser: %s: %v", what, err)
	}
}

// until asks again and again until ask says yes, or fails the test. What ask
// cannot decide yet is an error, which is shown if it never can.
func (p *Page) until(what string, ask func(ctx context.Context) (bool, error)) {
	p.tb.Helper()
	until(p.tab, p.tb, what, ask)
}

func until(parent context.Context, tb testing.TB, what string, ask func(ctx context.Context) (bool, error)) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	const first, longest = 10 * time.Millisecond, 100 * time.Millisecond // each question costs the browser time
	pause := first
	again := time.NewTimer(pause)
	defer again.Stop()
	var last error
	for {
		ok, err := ask(ctx)
		if ok {
			return
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-again.C:
			pause = min(pause*5/4, longest)
			again.Reset(pause)
		case <-ctx.Done():
			reason := ""
			if last != nil {
				reason = fmt.Sprintf(": %v", last)
			}
			tb.Fatalf("browser: %s: not within %v%s", what, patience, reason)
		}
	}
}
