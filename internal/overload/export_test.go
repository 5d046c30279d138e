package overload

import "time"

// Percentiles are those of some times.
func Percentiles(times ...time.Duration) Times {
	var h histogram
	for _, d := range times {
		h.add(d)
	}
	return h.times()
}

// Counted returns the time that a histogram counts for d.
func Counted(d time.Duration) time.Duration { return begins(step(d)) }
