package send_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// at returns the time that many milliseconds after the beginning of the test.
func at(ms float64) time.Time {
	return time.Unix(0, 0).Add(time.Duration(ms * float64(time.Millisecond)))
}

func TestWait(t *testing.T) {
	t.Parallel()
	const n = 100
	// serves answers claims in batches of size, one every so many milliseconds, from began on to until.
	serves := func(g *send.Gauge, began, until, every float64, size int) {
		for ms := began + every; ms <= until; ms += every {
			g.Served(at(ms), size)
		}
	}
	// bursts are ten queues of 40 ms, so many milliseconds apart, each with an answer after its end.
	bursts := func(g *send.Gauge, apart, after float64) {
		for burst := range 10 {
			began := apart * float64(burst)
			g.Waiting(at(began), true)
			serves(g, began, began+40, 1, 1)
			g.Waiting(at(began+40), false)
			g.Served(at(began+after), 1)
		}
	}
	for name, tt := range map[string]struct {
		measure func(g *send.Gauge)
		rate    float64 // claims a millisecond; 0: no claim is refused
	}{
		"nothing measured": {func(*send.Gauge) {}, 0},
		"one a millisecond": {func(g *send.Gauge) {
			g.Waiting(at(0), true)
			serves(g, 0, 400, 1, 1)
		}, 1},
		"in batches": {func(g *send.Gauge) {
			g.Waiting(at(0), true)
			serves(g, 0, 400, 10, 10)
		}, 1},
		"too short to tell": {func(g *send.Gauge) {
			g.Waiting(at(0), true)
			g.Served(at(40), 1)
		}, 0},
		"idle time between bursts is not service": {func(g *send.Gauge) {
			bursts(g, 1000, 500)
		}, 0},
		"nor is a short time without a queue": {func(g *send.Gauge) {
			bursts(g, 100, 90)
		}, 1},
		"most answers come when none waits any more": {func(g *send.Gauge) {
			for trip := range 10 {
				began := float64(100 * trip)
				g.Waiting(at(began), true)
				g.Served(at(began+70), 10)
				g.Waiting(at(began+70), false)
				g.Served(at(began+80), 60)
			}
		}, 1},
		"a store that keeps up": {func(g *send.Gauge) {
			g.Waiting(at(0), true)
			g.Served(at(400), 1)
			g.Waiting(at(400), false)
			g.Waiting(at(501), true)
		}, 0},
		"an outage is no rate": {func(g *send.Gauge) {
			g.Waiting(at(0), true)
			serves(g, 0, 900, 1, 1)
			g.Served(at(60_000), 1)
		}, 0.9},
		"it becomes slower": {func(g *send.Gauge) {
			g.Waiting(at(0), true)
			serves(g, 0, 500, 1, 10)
			serves(g, 500, 5500, 10, 1)
		}, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			var g send.Gauge
			tt.measure(&g)
			require.Zero(t, g.Wait(0), "none wait")
			if tt.rate == 0 {
				require.Zero(t, g.Wait(n))
				return
			}
			want := float64(n) / tt.rate
			require.InEpsilon(t, want, float64(g.Wait(n))/float64(time.Millisecond), 0.15)
		})
	}
}
