package snippets_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/middleware/console"
)

func TestConsoleOfThePage(t *testing.T) {
	t.Parallel()
	mux, locker, operatorsOnly := http.NewServeMux(), newLocker(t, memstore.New()), auth.Require

	mux.Handle("/admin/locks", operatorsOnly(console.New(locker)))

	require.Equal(t, 200, ask(mux, "GET", "/admin/locks", "").Code)
}
