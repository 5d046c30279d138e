package proxies_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

var intents = flag.Int("proxies.intents", 3, "how many orders each client places behind each proxy during each fault")

func TestMain(m *testing.M) {
	redis.SetLogger(mute{}) // it reports every connection that is lost here
	if addr := os.Getenv(addrVariable); addr != "" {
		if err := serve(addr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testmain.AtOnce(4)
	goleak.VerifyTestMain(m)
}

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}
