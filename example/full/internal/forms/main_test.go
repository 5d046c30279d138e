package forms_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/example/full/internal/browser"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

func TestMain(m *testing.M) {
	testmain.AtOnce(3)
	goleak.VerifyTestMain(browser.Main(m))
}
