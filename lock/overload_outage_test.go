package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/overload"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const refusedConnections = "refused connections"

// A server that comes back after a second is used at once: no caller is
// refused, neither because of the remaining clean-ups nor for another reason.
func TestOutage(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "measures time")
	for _, fault := range []string{"silence", refusedConnections} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, undisturbed(t, func() ([]string, time.Duration) { return throughOutage(t, fault) }))
		})
	}
}

// throughOutage returns the violations after an outage.
func throughOutage(t *testing.T, fault string) (wrong []string, late time.Duration) {
	t.Helper()
	proxy := narrow(t, 0)
	o := overload.Outage{
		Callers: 1000, Before: time.Second, For: time.Second, After: 3 * time.Second, Addr: proxy.Addr(),
		Begin: func(context.Context) error { proxy.Silence(); return nil },
		End:   func(context.Context) error { proxy.Speak(); return nil },
	}
	if fault == refusedConnections {
		o.Begin = func(context.Context) error { proxy.Refuse(); return nil }
		o.End = func(context.Context) error { return proxy.Admit() }
	}
	l, end := crowded(t, proxy.Addr(), overloadTwin{})
	defer end()
	r, err := o.Run(t.Context(), l, proxy)
	require.NoError(t, err)
	t.Logf("answer %v, grant %v, last refusal %v, clean-ups gone %v; %v failed, then %v; %.0f cycles a second, then %d; timers late by %v",
		r.Answer, r.Grant, r.LastRefusal, r.Empty, r.During, r.Since, r.Before, overload.Done(r.Seconds), r.Timers.P99)
	return wrongAfter(r), r.Timers.P99
}

// wrongAfter lists the mistakes in a recovery from an outage.
func wrongAfter(r overload.Recovery) (wrong []string) {
	const soon = 2 * time.Second
	if r.Answer == overload.Never {
		return []string{"the server never answered"}
	}
	for what, took := range map[string]time.Duration{"first grant": r.Grant, "last refusal": r.LastRefusal} {
		if took-soon > r.Answer {
			wrong = append(wrong, fmt.Sprintf("%s after %v, the server's first answer after %v", what, took, r.Answer))
		}
	}
	for _, kind := range []overload.Kind{overload.CleanUp, overload.Held, overload.Other} {
		if n := r.During[kind] + r.Since[kind]; n > 0 {
			wrong = append(wrong, fmt.Sprintf("%d %s", n, kind))
		}
	}
	return wrong
}
