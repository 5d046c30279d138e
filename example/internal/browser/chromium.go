package browser

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
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
	if os.Getenv("CI") == "true" {
		tb.Fatalf("%s\n%v", howToInstall, failure)
	}
	tb.Skipf("SKIPPED, %s\n%v", howToInstall, failure)
	return ""
}

var shared struct {
	mu      sync.Mutex
	mained  bool
	process context.Context //nolint:containedctx // it is how chromedp names a process
	end     func()
}

// Runner is a [testing.M], or what wraps one.
type Runner interface{ Run() int }

// Main wraps m so that the Chromium of [New] ends when the tests have run:
//
//	func TestMain(m *testing.M) { os.Exit(browser.Main(m).Run()) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(browser.Main(m)) }
func Main(m Runner) Runner { return runner{m} }

type runner struct{ tests Runner }

func (r runner) Run() int {
	shared.mu.Lock()
	shared.mained = true
	shared.mu.Unlock()
	defer func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		if shared.end != nil {
			shared.end()
		}
	}()
	return r.tests.Run()
}

// chromium returns the one of this test process, and starts it at the first
// call.
func chromium(tb testing.TB) context.Context {
	tb.Helper()
	path := binary(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.mained {
		tb.Fatal("browser: New needs a TestMain that uses browser.Main")
	}
	if shared.process == nil {
		process, end, err := launch(path)
		if err != nil {
			tb.Fatalf("browser: start %s: %v", path, err)
		}
		shared.process, shared.end = process, end //nolint:fatcontext // set once
	}
	return shared.process
}

func launch(path string) (process context.Context, end func(), err error) {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path))
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
