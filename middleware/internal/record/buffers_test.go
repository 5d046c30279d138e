package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/middleware/internal/record"
)

// TestLongAnswersAreNotPooled, whichever part of them is long.
func TestLongAnswersAreNotPooled(t *testing.T) {
	t.Parallel()
	const long = 64<<10 + 1
	require.False(t, record.IsPooled(long, 8, 8))
	require.False(t, record.IsPooled(8, long, 8))
	require.False(t, record.IsPooled(8, 8, 257))
	pooled := 0
	for range 100 { // a pool may forget
		if record.IsPooled(long-1, long-1, 256) {
			pooled++
		}
	}
	require.Positive(t, pooled)
}
