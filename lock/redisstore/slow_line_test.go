package redisstore_test

import (
	"testing"
	"time"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// Replies are slow, so calls are interrupted while the server has their commands.
func TestConformanceOverASlowLine(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "runs the conformance suite over a slow line")
	t.Parallel()
	p := respproxy.Start(t, redistest.Start(t).Addr())
	p.On(respproxy.Match{}, respproxy.DelayReply(2*time.Millisecond))
	for name, s := range map[string]lock.Store{"New": overClient(t, p.Addr(), nil), "Open": open(t, p.URL())} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			latchtest.TestStore(t, shortest, func(*testing.T) lock.Store { return s })
		})
	}
}
