package proxies_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestMain(m *testing.M) {
	testmain.AtOnce(4)
	goleak.VerifyTestMain(m)
}
