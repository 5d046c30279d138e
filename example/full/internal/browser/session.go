package browser

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
)

// Session is a Chromium of its own that can be closed and opened again, as users do who have
// it continue where they left off.
type Session struct {
	tb      testing.TB
	dir     string
	process context.Context //nolint:containedctx // chromedp names a browser by it
	end     func()
	page    *Page
}

// NewSession opens url in a new Chromium.
func NewSession(tb testing.TB, url string) *Session {
	tb.Helper()
	s := &Session{tb: tb, dir: tb.TempDir()}
	s.start()
	tab, end := chromedp.NewContext(s.process)
	tb.Cleanup(end)
	s.page = start(tab, tb, settings{width: 1280, height: 800, scheme: "light"})
	s.page.Open(url)
	return s
}

// Page is the tab that was opened last.
func (s *Session) Page() *Page { return s.page }

// Restart closes the Chromium, opens it again, and returns when it has restored the tab with url.
func (s *Session) Restart(url string) {
	s.tb.Helper()
	s.page.finish()
	ctx, cancel := context.WithTimeout(s.process, patience)
	defer cancel()
	if err := chromedp.Cancel(ctx); err != nil { // as its user closes it: it writes its session
		s.tb.Fatalf("browser: close: %v", err)
	}
	s.end()
	s.start(chromedp.Flag("restore-last-session", true))
	until(s.process, s.tb, "restore the tab with "+url, func(context.Context) (bool, error) {
		targets, err := chromedp.Targets(s.process)
		for _, found := range targets {
			if found.Type == "page" && found.URL == url {
				tab, end := chromedp.NewContext(s.process, chromedp.WithTargetID(found.TargetID))
				s.tb.Cleanup(end)
				s.page = start(tab, s.tb, s.page.settings)
				return true, nil
			}
		}
		return false, err
	})
}

func (s *Session) start(extra ...chromedp.ExecAllocatorOption) {
	s.tb.Helper()
	process, end, err := launch(binary(s.tb), append(extra, chromedp.UserDataDir(s.dir))...)
	if err != nil {
		s.tb.Fatalf("browser: start: %v", err)
	}
	s.process, s.end = process, end
	s.tb.Cleanup(end)
}
