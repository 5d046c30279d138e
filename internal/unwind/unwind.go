// Package unwind cleans up behind code that does not return.
package unwind

// RunOrCleanUp calls work. If work panics, or ends its goroutine (runtime.Goexit), it calls cleanUp,
// and the panic or the end goes on.
func RunOrCleanUp(work, cleanUp func()) {
	returned := false
	defer func() {
		if !returned {
			cleanUp()
		}
	}()
	work()
	returned = true
}
