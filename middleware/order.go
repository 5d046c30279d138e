package middleware

import (
	"context"
	"log/slog"
	"sync"

	"github.com/httplatch/httplatch/lock"
)

// orderHint tells the developer, once, that the guards are mounted the wrong
// way round.
type orderHint struct{ once sync.Once }

func (h *orderHint) check(ctx context.Context, guard *guardLog) {
	if _, locked := lock.FromContext(ctx); !locked {
		return
	}
	h.once.Do(func() {
		guard.log(ctx, slog.LevelError,
			"a Lock is mounted outside this guard, so that repeats are refused by the lock and its cool-down "+
				"instead of getting the first answer; mount Idempotent and Dedupe outside Lock: "+
				"authentication, then Idempotent, then Lock, then the handler")
	})
}
