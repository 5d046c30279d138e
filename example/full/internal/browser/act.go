package browser

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Keys for [Page.Press].
const (
	Tab    = kb.Tab
	Enter  = kb.Enter
	Escape = kb.Escape
	Space  = " "
	Up     = kb.ArrowUp
	Down   = kb.ArrowDown
)

// Open goes to url and returns when the page has loaded.
//
// A submission under way can abort the load: then it is asked for once more, as a person does.
func (p *Page) Open(url string) {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(p.tab, patience)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(url)); err != nil && strings.HasSuffix(err.Error(), "net::ERR_ABORTED") {
		p.must("open "+url+" again", chromedp.Navigate(url))
	} else if err != nil {
		p.tb.Fatalf("browser: open %s: %v", url, err)
	}
}

// Follow does what leads to another document, such as the click on a link or on
// the button of a form without JavaScript, and returns when that has loaded.
func (p *Page) Follow(act func()) {
	p.tb.Helper()
	before := p.document()
	act()
	p.until("wait for another page", func(ctx context.Context) (bool, error) {
		tree, err := chromedp.Call(ctx, page.GetFrameTree, cdp.Empty{})
		if err != nil || tree.FrameTree.Frame.LoaderID == before {
			return false, err
		}
		return chromedp.Run(ctx, chromedp.Evaluate[bool](`document.readyState === "complete"`))
	})
}

// document returns the ID of the loaded document. Each load of a page has another ID.
func (p *Page) document() (id cdp.LoaderID) {
	p.tb.Helper()
	p.must("ask for the document", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		tree, err := cdp.Call(ctx, t, page.GetFrameTree, cdp.Empty{})
		if err == nil {
			id = tree.FrameTree.Frame.LoaderID
		}
		return err
	}))
	return id
}

// Reload is the reload button. It sends a form again that led to the page,
// without the question that a person is asked.
func (p *Page) Reload() {
	p.tb.Helper()
	p.Follow(p.PressReload)
}

// PressReload presses the reload button, even while the page waits for an answer. It is to
// be called in what [Page.Follow] does.
func (p *Page) PressReload() {
	p.tb.Helper()
	p.must("reload", command(page.Reload, page.ReloadParams{}))
}

// Back is the back button.
func (p *Page) Back() {
	p.tb.Helper()
	p.Follow(func() {
		p.must("go back", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			history, err := cdp.Call(ctx, t, page.GetNavigationHistory, cdp.Empty{})
			if err != nil {
				return err
			}
			if history.CurrentIndex == 0 {
				return errors.New("there is nothing to go back to")
			}
			to := history.Entries[history.CurrentIndex-1].ID
			_, err = cdp.Call(ctx, t, page.NavigateToHistoryEntry, page.NavigateToHistoryEntryParams{EntryID: to})
			return err
		}))
	})
}

// Click clicks on the middle of what selector finds first, once it is there to
// be clicked on: visible, enabled, and not behind something else.
func (p *Page) Click(selector string) {
	p.tb.Helper()
	x, y := p.reach(selector)
	p.must("click on "+selector, chromedp.MouseClickXY(x, y))
}

// ClickTwice clicks, and gap later again, wherever that leads: what a double
// click is made of.
func (p *Page) ClickTwice(selector string, gap time.Duration) {
	p.tb.Helper()
	x, y := p.reach(selector)
	began := time.Now()
	p.must("click on "+selector, chromedp.MouseClickXY(x, y))
	p.must("click again on "+selector, chromedp.Sleep(gap-time.Since(began)), chromedp.MouseClickXY(x, y, chromedp.ClickCount(2)))
}

// Aim returns a click on the middle of what selector finds now. While a page waits for
// an answer it can be clicked on, but not asked where to.
func (p *Page) Aim(selector string) (click func()) {
	p.tb.Helper()
	x, y := p.reach(selector)
	return func() {
		p.tb.Helper()
		p.must("click where "+selector+" was", chromedp.MouseClickXY(x, y))
	}
}

// Type replaces what is in a field.
func (p *Page) Type(selector, text string) {
	p.tb.Helper()
	p.Click(selector)
	p.must("type into "+selector, chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)), chromedp.KeyEvent(text))
}

// Press presses keys, one after the other, wherever the focus is.
func (p *Page) Press(keys ...string) {
	p.tb.Helper()
	for _, key := range keys {
		p.must(fmt.Sprintf("press %q", key), chromedp.KeyEvent(key))
	}
}

// reach scrolls to what selector finds and returns its middle.
func (p *Page) reach(selector string) (x, y float64) {
	p.tb.Helper()
	p.until("reach "+selector, func(ctx context.Context) (bool, error) {
		at, err := chromedp.Run(ctx, chromedp.Evaluate[struct {
			X, Y float64
			No   string
		}](`(() => {
			const e = document.querySelector(`+quoted(selector)+`);
			if (!e) return {No: "there is none"};
			e.scrollIntoView({block: "center", behavior: "instant"});
			const box = e.getBoundingClientRect(), X = box.x + box.width / 2, Y = box.y + box.height / 2;
			if (!box.width || !box.height || !e.checkVisibility({visibilityProperty: true})) return {No: "it is not visible"};
			if (e.disabled) return {No: "it is disabled"};
			const top = document.elementFromPoint(X, Y);
			if (!top || !(e.contains(top) || top.contains(e))) return {No: "something is before it: " + (top && top.outerHTML.slice(0, 99))};
			return {X, Y, No: ""};
		})()`))
		if err != nil {
			return false, err
		}
		x, y = at.X, at.Y
		if at.No != "" {
			return false, errors.New(at.No)
		}
		return true, nil
	})
	return x, y
}
