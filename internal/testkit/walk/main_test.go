package walk_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/walk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(walk.Main(m)) }
