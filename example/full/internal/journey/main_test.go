package journey_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

var every = flag.Int("journey.every", 60, "cut at each byte offset that this divides, and where something begins or ends; 1 is all")

func TestMain(m *testing.M) {
	testmain.AtOnce(3)
	goleak.VerifyTestMain(testmain.After(pgtest.Main(redistest.Main(m)), removeBuilt))
}

// built is the directory of the program that tests start, "" if none did.
var built string

func removeBuilt() {
	if built != "" {
		_ = os.RemoveAll(built)
	}
}
