package proxies_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/walk"
)

const page = "../../../../docs/proxies.md"

// lines returns the lines of the page for a proxy, with the servers of a test, and a timeout of 1 s.
func (k kind) lines(t *testing.T) string {
	t.Helper()
	var found []string
	for _, b := range walk.Blocks(t, page) {
		if b.Language == k.language {
			found = append(found, b.Text)
		}
	}
	require.Len(t, found, 1, "%s has one block for %s", page, k.name)
	text := found[0]
	for i := 0; i < len(k.set); i += 2 {
		require.Contains(t, text, k.set[i])
		text = strings.ReplaceAll(text, k.set[i], k.set[i+1])
	}
	return text
}
