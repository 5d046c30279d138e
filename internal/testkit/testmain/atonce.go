package testmain

import (
	"flag"
	"runtime"
	"strconv"
)

// AtOnce lets perCore parallel tests per core run at the same time instead of one, for
// packages whose tests mostly wait: for leases to end, and for servers to start,
// to wake up and to find a new master. With two tests per core, the cores were idle for half of the
// time. An argument -parallel overrides it. TestMain calls it, before the tests run.
func AtOnce(perCore int) {
	// The flag is registered before TestMain runs, and accepts any number.
	_ = flag.Set("test.parallel", strconv.Itoa(perCore*runtime.GOMAXPROCS(0)))
}
