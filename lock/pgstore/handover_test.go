package pgstore_test

import (
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/handover"
	"github.com/httplatch/httplatch/lock"
)

// A key goes from one process to another over a real server.
func TestKeyIsHandedOver(t *testing.T) {
	t.Parallel()
	url := database(t)
	migrate(t, newStore(t, newPool(t, url)))
	handover.Test(t, func(t *testing.T) lock.Store {
		t.Helper()
		return newStore(t, newPool(t, url))
	})
}
