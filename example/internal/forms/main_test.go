package forms_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/example/internal/browser"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(browser.Main(m)) }
