package delay

import (
	"syscall"
	"time"
)

// sleep is exact to some tens of microseconds.
func sleep(d time.Duration) {
	for left := syscall.NsecToTimespec(int64(d)); left.Sec >= 0 && left.Nsec > 0; {
		if syscall.Nanosleep(&left, &left) == nil {
			return
		}
	}
}
