package snippets_test

import (
	"testing"
	"time"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// newMyStore is the store of a reader of docs/stores.md.
func newMyStore(_ string) lock.Store { return memstore.New() }

func TestMyStore(t *testing.T) {
	const address = "localhost:4000" // of a server
	testmain.SkipIn(t, testmain.Short, "waits for leases to end")
	latchtest.TestStore(t, 50*time.Millisecond, func(*testing.T) lock.Store {
		return newMyStore(address)
	})
}
