package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const howToInstall = `no chromium: this test needs a real browser.
Install it (apt-get install chromium, brew install --cask chromium, dnf install chromium)
or set CHROMIUM=/path/to/chromium (or to another browser that is built on it).`

// binary finds the Chromium to run, or ends the test.
func binary(tb testing.TB) string {
	tb.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome"}
	if named := os.Getenv("CHROMIUM"); named != "" {
		names = []string{named}
	}
	var failure error
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err == nil {
			return path
		}
		failure = err
	}
	testmain.Unavailable(tb, howToInstall, failure)
	return ""
}

var shared testmain.Shared[context.Context]

// Main wraps m so that the Chromium of [New] ends when the tests have run:
//
//	func TestMain(m *testing.M) { os.Exit(browser.Main(m).Run()) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(browser.Main(m)) }
func Main(m testmain.Runner) testmain.Runner { return shared.Main(m) }

// chromium returns the one of this test process, and starts it at the first
// call.
func chromium(tb testing.TB) context.Context {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Quick, "starts a browser")
	path := binary(tb)
	return shared.Get(tb, "browser: New needs a TestMain that uses browser.Main", func() (context.Context, func(), error) {
		process, end, err := launch(path)
		if err != nil {
			return nil, nil, fmt.Errorf("browser: start %s: %w", path, err)
		}
		return process, end, nil
	})
}

func launch(path string, extra ...chromedp.ExecAllocatorOption) (process context.Context, end func(), err error) {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path))
	options = append(options, extra...)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses root one
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	process, cancel := chromedp.NewContext(allocator)
	end = func() {
		cancel()
		stop() // returns when the process has been reaped and its profile removed
	}
	if err := chromedp.Do(process); err != nil {
		end()
		return nil, nil, err
	}
	return process, end, nil
}
