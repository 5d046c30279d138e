package redisstore_test

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
)

// delay delays a part of a client once it is armed: for long, or, if long is zero, until
// it is lifted.
type delay struct {
	long   time.Duration
	armed  atomic.Bool
	late   *lateness
	lifted chan struct{}
}

func newDelay(long time.Duration, late *lateness) *delay {
	return &delay{long: long, late: late, lifted: make(chan struct{})}
}

func (d *delay) pass() {
	if !d.armed.Load() {
		return
	}
	if d.long == 0 {
		<-d.lifted
		return
	}
	d.late.wait(d.lifted, d.long)
}

// hookOf is a hook that runs functions before a step of the client, and after it.
type hookOf struct{ dial, command, pipeline, after func() }

func runIf(f func()) {
	if f != nil {
		f()
	}
}

func (h hookOf) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		runIf(h.dial)
		return next(ctx, network, addr)
	}
}

func (h hookOf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		runIf(h.command)
		defer runIf(h.after)
		return next(ctx, cmd)
	}
}

func (h hookOf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		runIf(h.pipeline)
		defer runIf(h.after)
		return next(ctx, cmds)
	}
}

// limiterOf is a Limiter that runs functions.
type limiterOf struct{ allow, report func() }

func (l limiterOf) Allow() error         { runIf(l.allow); return nil }
func (l limiterOf) ReportResult(_ error) { runIf(l.report) }

// subscription is a StreamingCredentialsProvider that runs a function.
type subscription func()

func (s subscription) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s()
	return auth.NewBasicCredentials("", ""), func() error { return nil }, nil
}
