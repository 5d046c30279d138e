package httpmethod_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/httpmethod"
)

// TestSafe has each method of the registry of HTTP methods, and some that are not in it.
func TestSafe(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "PROPFIND", "QUERY", "REPORT", "SEARCH", "TRACE"} {
		require.True(t, httpmethod.Safe(method), method)
	}
	for _, method := range []string{
		"ACL", "BASELINE-CONTROL", "BIND", "CHECKIN", "CHECKOUT", "CONNECT", "COPY", "DELETE", "LABEL", "LINK", "LOCK",
		"MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL", "MKREDIRECTREF", "MKWORKSPACE", "MOVE", "ORDERPATCH", "PATCH", "POST",
		"PRI", "PROPPATCH", "PUT", "REBIND", "UNBIND", "UNCHECKOUT", "UNLINK", "UNLOCK", "UPDATE", "UPDATEREDIRECTREF",
		"VERSION-CONTROL",
		"", "get", "Query", "PURGE", "BOOKING",
	} {
		require.False(t, httpmethod.Safe(method), method)
	}
}
