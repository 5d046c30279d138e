package lock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/httplatch/httplatch/lock/internal/send"
)

// shield makes a panic in a call of a store the failure of that call, as package
// send does for the calls of a Locker, on the goroutines of a quorum.
type shield struct {
	Store
	outage *outage
	logger *slog.Logger
}

// shielded returns store behind a shield.
func shielded(store Store, o *outage, logger *slog.Logger) Store {
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
		*err = send.Panic(value)
		o.logPanic(logger, *err)
	}
}

// logPanic says once a minute where a store has panicked, if err is of that.
func (o *outage) logPanic(logger *slog.Logger, err error) {
	p, ok := errors.AsType[*send.PanicError](err)
	if !ok {
		return
	}
	due, silent := o.due("panic at")
	if !due {
		return
	}
	logger.LogAttrs(context.Background(), levelError, "lock: a call of the store panicked; others are not logged for a minute", //nolint:forbidigo // of any call
		attrPanic(p.Value), slog.String("stack", string(p.Stack)), slog.Int("repeated", silent),
		attrDo("see which hook, limiter or dialer of the store's client it was; calls that run into it count as not answered"))
}
