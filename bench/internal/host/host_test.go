package host_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/host"
)

func TestCleanUpsRunHoweverARunEnds(t *testing.T) {
	broken := errors.New("broken")
	for _, tt := range []struct {
		name string
		end  func(h *host.Host) error
		want string
	}{
		{"well", func(*host.Host) error { return nil }, ""},
		{"with an error", func(*host.Host) error { return broken }, "broken"},
		{"with Fatal", func(h *host.Host) error { h.Fatal("no ", "port"); return nil }, "no port"},
		{"with Fatalf", func(h *host.Host) error { h.Fatalf("no %s", "port"); return nil }, "no port"},
		{"with Skipf", func(h *host.Host) error { h.Skipf("no %s", "redis"); return nil }, "no redis"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var order []int
			err := host.Run(func(h *host.Host) error {
				h.Helper()
				h.Cleanup(func() { order = append(order, 1) })
				h.Cleanup(func() { order = append(order, 2) })
				return tt.end(h)
			})
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, tt.want)
			}
			require.Equal(t, []int{2, 1}, order)
		})
	}
}

func TestAPanicPasses(t *testing.T) {
	cleaned := false
	require.PanicsWithValue(t, "bug", func() {
		_ = host.Run(func(h *host.Host) error {
			h.Cleanup(func() { cleaned = true })
			panic("bug")
		})
	})
	require.True(t, cleaned)
}
