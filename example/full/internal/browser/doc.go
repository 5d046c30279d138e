// Package browser lets tests look at a page and use it as a person would: in a
// real Chromium, with real clicks and keys.
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(browser.Main(m)) }
//	...
//	p := browser.New(t, browser.Size(390, 844), browser.Dark())
//	p.Open(url)
//	p.ClickTwice("#order button", 30*time.Millisecond)
//	p.AwaitText("#outcome", "one order")
//	p.Screenshot("one-order")
//
// One Chromium serves all tests of a binary, and each [New] is a profile of its
// own in it: no cookies, caches or history are shared. What a page writes to
// the console as an error, uncaught exceptions and violations of its
// Content-Security-Policy among it, fails the test; see [Page.Expect].
//
// Nothing here sleeps for a condition to come true: methods wait until it has,
// and fail the test when it has not after half a minute. They are to be called
// from the goroutine of the test, one at a time for each Page.
//
// Without a chromium (on PATH, or named by the environment variable CHROMIUM)
// tests are skipped with a reason; with CI=true they fail, so that a build
// machine never passes by skipping.
package browser
