package recorder_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/middleware/internal/recorder"
)

// TestLongAnswersAreNotPooled, whichever part of them is long.
func TestLongAnswersAreNotPooled(t *testing.T) {
	t.Parallel()
	const long = 64<<10 + 1
	require.False(t, recorder.IsPooled(long, 1, 1))
	require.False(t, recorder.IsPooled(1, long, 1))
	require.False(t, recorder.IsPooled(1, 1, 257))
	pooled := 0
	for range 100 { // a pool may forget
		if recorder.IsPooled(long-1, long-1, 256) {
			pooled++
		}
	}
	require.Positive(t, pooled)
}
