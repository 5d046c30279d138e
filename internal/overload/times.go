package overload

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Times are percentiles, exact to 1 %. They are 0 if nothing was measured.
type Times struct{ P50, P99 time.Duration }

const (
	fineBits = 7 // a power of two is split into so many steps, as a power of two
	fine     = 1 << fineBits
)

// histogram counts durations for any number of callers at once, in little memory.
type histogram [(64 - fineBits + 1) * fine]atomic.Int64

func (h *histogram) add(d time.Duration) { h[step(d)].Add(1) }

func step(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < fine {
		return int(v)
	}
	shift := bits.Len64(v) - fineBits - 1
	return shift*fine + int(v>>shift) //nolint:gosec // below 2 * fine
}

// begins is the least duration of a step.
func begins(step int) time.Duration {
	if step < 2*fine {
		return time.Duration(step)
	}
	shift := step/fine - 1
	return time.Duration(fine+step%fine) << shift
}

func (h *histogram) times() Times { return Times{h.percentile(50), h.percentile(99)} }

func (h *histogram) percentile(p int64) time.Duration {
	var all, seen int64
	for i := range h {
		all += h[i].Load()
	}
	for i := range h {
		if seen += h[i].Load(); all > 0 && seen*100 >= all*p {
			return begins(i)
		}
	}
	return 0
}
