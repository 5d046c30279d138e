package redistest

import (
	"flag"
	"runtime"
	"strconv"
)

// AtOnce has so many parallel tests per core run at the same time, not one, for
// packages whose tests mostly wait: for leases to end, and for servers to start,
// to wake up and to find a new master. An argument -parallel overrides it.
// TestMain calls it, before the tests run.
func AtOnce(perCore int) {
	// That flag is registered before TestMain runs, and takes any number.
	_ = flag.Set("test.parallel", strconv.Itoa(perCore*runtime.GOMAXPROCS(0)))
}
