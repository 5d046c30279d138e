package redistest

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"time"
)

var shared struct {
	mu      sync.Mutex
	mained  bool
	server  *Server
	failure error
}

// Runner is a [testing.M], or what wraps one.
type Runner interface{ Run() int }

// Main wraps m so that the server of [Shared] ends when the tests have run:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m).Run()) }
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }
func Main(m Runner) Runner { return runner{m} }

type runner struct{ tests Runner }

func (r runner) Run() int {
	shared.mu.Lock()
	shared.mained = true
	shared.mu.Unlock()
	defer outlastDials()
	defer func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		if shared.server != nil {
			shared.server.remove()
			shared.server = nil
		}
	}()
	return r.tests.Run()
}

// outlastDials waits, up to ten seconds, for the pools of go-redis that were
// closed while their server was away. They look once a second whether they are,
// which is longer than goleak waits for what may be left over.
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
// configure it, and keep to their own keys: new ones at every repetition
// too, for go test -count=2 repeats them on the same server. TestMain has to
// use [Main].
func Shared(tb testing.TB) *Server {
	tb.Helper()
	bin := binary(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.mained {
		tb.Fatal("redistest: Shared needs a TestMain that uses redistest.Main")
	}
	if shared.server == nil && shared.failure == nil {
		shared.server, shared.failure = launch(bin, nil)
	}
	if shared.failure != nil {
		tb.Fatal(shared.failure)
	}
	return shared.server
}
