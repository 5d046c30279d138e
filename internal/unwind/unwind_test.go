package unwind_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/unwind"
)

func TestRunOrCleanUp(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		work     func()
		cleansUp bool
		panics   any
		returns  bool
	}{
		"returns":            {work: func() {}, returns: true},
		"panics":             {work: func() { panic("at the disco") }, cleansUp: true, panics: "at the disco"},
		"ends its goroutine": {work: runtime.Goexit, cleansUp: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cleanedUp, returned, panicked := 0, false, any(nil)
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { panicked = recover() }()
				unwind.RunOrCleanUp(tt.work, func() { cleanedUp++ })
				returned = true
			}()
			<-done
			require.Equal(t, tt.cleansUp, cleanedUp == 1)
			require.Equal(t, tt.panics, panicked)
			require.Equal(t, tt.returns, returned)
		})
	}
}
