//go:build !unix

package overload

import "time"

// processCPU is not known here.
func processCPU() time.Duration { return 0 }
