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

func (h *orderHint) check(ctx context.Context, name string) {
	if _, locked := lock.FromContext(ctx); !locked {
		return
	}
	h.once.Do(func() {
		slog.Default().LogAttrs(ctx, slog.LevelError,
			"httplatch: a Lock is mounted outside this guard, so that repeats are refused by the lock and its cool-down "+
				"instead of getting the first answer; mount Idempotent and Dedupe outside Lock: "+
				"authentication, then Idempotent, then Lock, then the handler",
			slog.String("name", name))
	})
}
