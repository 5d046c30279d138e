package walk

import (
	"context"
	"sync"
	"time"
)

// output collects the output of the shell and all its processes. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text []byte
	more chan struct{} // has a value when there is more output
}

// Write is for the processes.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	o.text = append(o.text, p...)
	o.mu.Unlock()
	select {
	case o.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// since returns the output from the offset begin on.
func (o *output) since(begin int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text[begin:])
}

// await reports whether enough was printed from the offset begin on before the time is over.
func (o *output) await(ctx context.Context, patience time.Duration, begin int, enough func(text string) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if enough(o.since(begin)) {
			return true
		}
		select {
		case <-o.more:
		case <-ctx.Done():
			return false
		}
	}
}
