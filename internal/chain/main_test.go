package chain_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

var faults = flag.Int("chain.faults", 24, "how many faults meet the orders that cross a chain of processes")

// roleVariable is the environment variable that makes this program a service.
const roleVariable = "LATCH_TEST_CHAIN"

func TestMain(m *testing.M) {
	redis.SetLogger(mute{}) // it reports every connection that is lost here
	if role := os.Getenv(roleVariable); role != "" {
		fmt.Fprintln(os.Stderr, serve(role))
		os.Exit(1)
	}
	goleak.VerifyTestMain(redistest.Main(m))
}

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}
