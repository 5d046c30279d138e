package testmain

import (
	"fmt"
	"runtime"
	"testing"
)

// Verdict is a [testing.TB] that records the end of a test. With it, a test can
// check the effect of a test helper.
type Verdict struct {
	testing.TB

	WhySkipped, WhyFailed string // "": it was not
	Errors                []string

	cleanups []func()
}

// Judge runs f as the body of a test that may end early.
func Judge(tb testing.TB, f func(testing.TB)) *Verdict {
	tb.Helper()
	v := &Verdict{TB: tb}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer v.cleanUp()
		f(v)
	}()
	<-ended
	return v
}

func (v *Verdict) cleanUp() {
	for len(v.cleanups) > 0 {
		last := v.cleanups[len(v.cleanups)-1]
		v.cleanups = v.cleanups[:len(v.cleanups)-1]
		last()
	}
}

// Helper does nothing.
func (v *Verdict) Helper() {}

// Name is the same for all.
func (v *Verdict) Name() string { return "judged" }

// Cleanup registers f, which is called when the body has ended.
func (v *Verdict) Cleanup(f func()) { v.cleanups = append(v.cleanups, f) }

// Errorf is remembered in Errors.
func (v *Verdict) Errorf(format string, args ...any) {
	v.Errors = append(v.Errors, fmt.Sprintf(format, args...))
}

// Error is remembered in Errors.
func (v *Verdict) Error(args ...any) { v.Errors = append(v.Errors, fmt.Sprint(args...)) }

// FailNow ends the body.
func (v *Verdict) FailNow() { runtime.Goexit() }

// Fatal ends the body, and is remembered in WhyFailed.
func (v *Verdict) Fatal(args ...any) {
	v.WhyFailed = fmt.Sprint(args...)
	runtime.Goexit()
}

// Fatalf is Fatal.
func (v *Verdict) Fatalf(format string, args ...any) { v.Fatal(fmt.Sprintf(format, args...)) }

// Skipf ends the body, and is remembered in WhySkipped.
func (v *Verdict) Skipf(format string, args ...any) {
	v.WhySkipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// Failed reports whether there was an error, or the body has failed.
func (v *Verdict) Failed() bool { return v.WhyFailed != "" || len(v.Errors) > 0 }
