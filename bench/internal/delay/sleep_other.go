//go:build !linux

package delay

import "time"

// sleep may be late by a millisecond.
func sleep(d time.Duration) { time.Sleep(d) }
