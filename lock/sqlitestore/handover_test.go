package sqlitestore_test

import (
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/handover"
	"github.com/httplatch/httplatch/lock"
)

// A key goes from one process to another over one file.
func TestKeyIsHandedOver(t *testing.T) {
	t.Parallel()
	path := file(t)
	handover.Test(t, func(t *testing.T) lock.Store {
		t.Helper()
		return open(t, path)
	})
}
