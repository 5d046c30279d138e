package browser

import (
	"context"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// OpenTab has the page open url in a tab of its own, as window.open does. The new tab
// begins with a copy of the sessionStorage of p, as a duplicated one does, and can ask
// what is in p by way of "opener", even while p waits for an answer.
func (p *Page) OpenTab(url string) *Page {
	p.tb.Helper()
	return p.Opened(url, func() { Eval[bool](p, "!!open("+quoted(url)+")") })
}

// Opened does what has the page open a tab, such as a click on a link with target=_blank, and
// returns the tab when it has loaded. what is for messages.
func (p *Page) Opened(what string, act func()) *Page {
	p.tb.Helper()
	self := chromedp.FromContext(p.tab).Target.TargetID
	opened := chromedp.WaitNewTarget(p.tab, func(info *target.Info) bool { return info.OpenerID == self && info.URL != "" })
	act()
	ctx, cancel := context.WithTimeout(p.tab, patience)
	defer cancel()
	select {
	case id := <-opened:
		tab, end := chromedp.NewContext(p.tab, chromedp.WithTargetID(id))
		p.tb.Cleanup(end)
		other := start(tab, p.tb, p.settings)
		other.Await(`location.href !== "about:blank" || ` + quoted(what) + ` === location.href`)
		other.Await(`document.readyState === "complete"`)
		return other
	case <-ctx.Done():
		p.tb.Fatalf("browser: open a tab with %s: not within %v", what, patience)
		return nil
	}
}

// Stop is the stop button: it gives up what is being loaded.
func (p *Page) Stop() {
	p.tb.Helper()
	p.must("stop loading", command(page.StopLoading, cdp.Empty{}))
}

// Offline takes the network away, or gives it back. What is under way fails.
func (p *Page) Offline(off bool) {
	p.tb.Helper()
	p.must("change the network", command(network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{Offline: off, DownloadThroughput: -1, UploadThroughput: -1}},
	}))
}

// Crash ends the process of the page, as a lack of memory does. The browser keeps what it
// keeps of a tab that it restores: its history and its sessionStorage.
func (p *Page) Crash() {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(p.tab, patience)
	defer cancel()
	crashed := make(chan struct{}, 1)
	err := chromedp.Listen(ctx, func(ev any) {
		if _, ok := ev.(*inspector.EventTargetCrashed); ok {
			select {
			case crashed <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		p.tb.Fatalf("browser: crash: %v", err)
	}
	calling, called := context.WithCancel(ctx)
	var call sync.WaitGroup
	call.Go(func() { _ = chromedp.Do(calling, command(page.Crash, cdp.Empty{})) }) // it gets no answer
	select {
	case <-crashed:
	case <-ctx.Done():
		p.tb.Errorf("browser: crash: not within %v", patience)
	}
	called()
	call.Wait()
}
