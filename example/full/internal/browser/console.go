package browser

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/chromedp/chromedp"
)

// Expect names a part of an error in the console that is meant to be there:
// Chromium reports every answer from 400 up as one, whatever the page makes of
// it, with "status of 409" in it. An error that is expected and does not come
// is no failure.
func (p *Page) Expect(part string) { p.expected = append(p.expected, part) }

// finish fails the test for errors in the console, and keeps a picture of what
// a failed test saw last.
func (p *Page) finish() {
	p.tb.Helper()
	if p.finished {
		return
	}
	p.finished = true
	errs, err := p.errors()
	if err != nil {
		p.tb.Errorf("browser: read the console: %v", err)
	}
	for _, e := range errs {
		p.tb.Errorf("browser: the page reports an error: %s", e)
	}
	if !p.tb.Failed() {
		return
	}
	png, err := p.picture()
	if err == nil {
		err = p.write("failed-"+strings.ReplaceAll(p.tb.Name(), "/", "-"), png)
	}
	if err != nil {
		p.tb.Logf("browser: no picture of the failure: %v", err)
	}
}

// errors reads the console up to a line of our own, before which all is that
// the page has written so far.
func (p *Page) errors() ([]string, error) {
	ctx, cancel := context.WithTimeout(p.tab, patience)
	defer cancel()
	defer context.AfterFunc(ctx, p.silence)()
	last := "end of test " + rand.Text()
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[chromedp.Void]("console.debug("+quoted(last)+"), {}")); err != nil {
		return nil, err
	}
	var errs []string
	for m, err := range p.console {
		if err != nil {
			return errs, err
		}
		if m.Text == last {
			break
		}
		bad := m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleException
		if bad && !slices.ContainsFunc(p.expected, func(part string) bool { return strings.Contains(m.Text, part) }) {
			errs = append(errs, m.Text+" "+m.URL)
		}
	}
	return errs, nil
}
