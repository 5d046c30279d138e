package redistest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }
