package redistest

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

var shared testmain.Shared[*Server]

// Main wraps m so that the server of [Shared] ends when the tests have run:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m).Run()) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }
func Main(m testmain.Runner) testmain.Runner {
	return testmain.After(shared.Main(m), outlastDials)
}

// outlastDials waits, up to ten seconds, for the pools of go-redis that were
// closed while their server was away. They check once a second whether they are
// closed, and goleak does not wait for so long.
func outlastDials() {
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("(*ConnPool).tryDial")) {
			return
		}
	}
}

// Shared returns the one server of this test process and starts it at the
// first call. Tests and benchmarks that use it neither flush, stop, kill nor
// configure it, and use their own keys. Each repetition uses new keys, because
// go test -count=2 repeats the tests on the same server. TestMain has to use
// [Main].
func Shared(tb testing.TB) *Server {
	tb.Helper()
	bin := binary(tb)
	return shared.Get(tb, "redistest: Shared needs a TestMain that uses redistest.Main", func() (*Server, func(), error) {
		s, err := launch(bin, nil)
		if err != nil {
			return nil, nil, err
		}
		return s, s.Remove, nil
	})
}
