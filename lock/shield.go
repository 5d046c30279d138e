package lock

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// shield makes a panic in a call of a store the failure of that call. A store runs
// code of others, such as the hooks of a client, and most calls are on goroutines
// of this package, where a panic would end the process. What the call had sent by
// then is not known.
//
// runtime.Goexit passes: it ends only the goroutine, and the books are kept by
// those who started that.
type shield struct {
	Store
	outage *outage
	logger *slog.Logger
}

// shielded returns store behind a shield, if it may run such code: what never
// leaves this process does not.
func shielded(store Store, o *outage, logger *slog.Logger) Store {
	if isPrompt(store) {
		return store
	}
	return &shield{store, o, logger}
}

func (s *shield) Claim(ctx context.Context, key string, c Claim) (e Entry, err error) {
	defer recovered(&err, s.outage, s.logger)
	return s.Store.Claim(ctx, key, c)
}

func (s *shield) Renew(ctx context.Context, key string, c Claim) (ok bool, err error) {
	defer recovered(&err, s.outage, s.logger)
	return s.Store.Renew(ctx, key, c)
}

func (s *shield) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (ok bool, err error) {
	defer recovered(&err, s.outage, s.logger)
	return s.Store.Settle(ctx, key, token, receipt, keep)
}

func (s *shield) Release(ctx context.Context, key, token string) (ok bool, err error) {
	defer recovered(&err, s.outage, s.logger)
	return s.Store.Release(ctx, key, token)
}

func (s *shield) Get(ctx context.Context, key string) (e Entry, err error) {
	defer recovered(&err, s.outage, s.logger)
	return s.Store.Get(ctx, key)
}

// recovered is deferred by a call of a store that returns *err.
func recovered(err *error, o *outage, logger *slog.Logger) {
	if value := recover(); value != nil {
		p := &panicError{value}
		*err = p
		if due, silent := o.due("panic at"); due {
			p.log(logger, silent)
		}
	}
}

// panicError is the error of a call that has panicked.
type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprintf("the store panicked: %v", p.value) }
func (*panicError) Class() string   { return "panic" }

// log says where p was, to those who have to mend it.
func (p *panicError) log(logger *slog.Logger, silent int) {
	logger.LogAttrs(context.Background(), levelError, "lock: a call of the store panicked; others are not logged for a minute", //nolint:forbidigo // of any call
		attrPanic(p.value), slog.String("stack", string(debug.Stack())), slog.Int("repeated", silent),
		attrDo("see which hook, limiter or dialer of the store's client it was; calls that run into it count as not answered"))
}
