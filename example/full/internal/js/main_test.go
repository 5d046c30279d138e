package js_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestMain(m *testing.M) {
	testmain.AtOnce(2)
	goleak.VerifyTestMain(testmain.After(browser.Main(m), func() { _ = os.RemoveAll(built) }))
}
