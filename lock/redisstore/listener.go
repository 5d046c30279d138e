package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// pulse is the interval at which a listener checks whether a caller still waits,
// and whether its connection still works.
const pulse = 3 * time.Second

// A listener pauses after a failure, longer each time: no caller waits for it.
const (
	minRelisten = 100 * time.Millisecond
	maxRelisten = 5 * time.Second
	brokenPause = time.Second // after a hook of the client has panicked
)

// listener is the goroutine that subscribes to the topics, over a connection of
// its own. It ends a pulse or two after the last waiter has gone.
type listener struct {
	notices *notices
	stop    context.CancelFunc
	ended   chan struct{}
}

func listen(n *notices) *listener {
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it serves many waiters, and outlives each
	l := &listener{notices: n, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		defer stop()
		for again := true; again; {
			again = l.session(ctx)
		}
		n.noteEnded(l)
	}()
	return l
}

// session listens over one connection, and over the connections with which go-redis replaces it.
// If again is true, the caller starts another session: go-redis does not replace a connection
// that has failed silently.
func (l *listener) session(parent context.Context) (again bool) {
	ctx, stop := context.WithCancel(parent)
	sub := &subscription{sub: l.notices.client.Subscribe(ctx), received: make(chan struct{}), broken: true}
	l.notices.resubscribe()
	if !l.subscribe(ctx, sub) {
		stop()
		_ = sub.sub.Close()
		return l.afterPanic(parent)
	}
	heard := new(atomic.Bool)
	go func() {
		defer close(sub.received)
		sub.broken = l.receive(ctx, sub.sub, heard)
	}()
	defer func() {
		stop()
		sub.end()
	}()

	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for asked := false; ; {
		select {
		case <-l.notices.changed:
			if !l.subscribe(ctx, sub) {
				return l.afterPanic(parent)
			}
		case <-tick.C:
			switch {
			case l.notices.retire():
				return false
			case heard.Swap(false):
				asked = false
			case asked:
				return true
			default:
				asked = true
				_ = sub.use(ctx, func(ctx context.Context) error { return sub.sub.Ping(ctx) })
			}
		case <-sub.received:
			if !sub.broken { // the client was closed
				return false
			}
			return l.afterPanic(parent)
		case <-parent.Done():
			return false
		}
	}
}

// afterPanic waits, and reports whether a caller still waits.
func (l *listener) afterPanic(parent context.Context) bool {
	sleep(parent, brokenPause)
	return parent.Err() == nil && !l.notices.retire()
}

// subscribe sends the changed subscriptions to the server. Without a connection, go-redis
// repeats them over the next one. ok is false if go-redis will not repeat them.
func (l *listener) subscribe(ctx context.Context, sub *subscription) (ok bool) {
	more, fewer := l.notices.takeChanges()
	ok = true
	if len(fewer) > 0 {
		ok = sub.use(ctx, func(ctx context.Context) error { return sub.sub.Unsubscribe(ctx, fewer...) })
	}
	if len(more) > 0 && ok {
		ok = sub.use(ctx, func(ctx context.Context) error { return sub.sub.Subscribe(ctx, more...) })
	}
	return ok
}

// receive wakes waiters until the subscription or the client is closed. broken is true if a hook
// of the client has panicked.
func (l *listener) receive(ctx context.Context, sub *redis.PubSub, heard *atomic.Bool) (broken bool) {
	defer func() {
		if p := recover(); p != nil {
			_ = failure.OfHook(p)
			broken = true
		}
	}()
	pause := minRelisten
	for {
		message, err := sub.Receive(ctx)
		if ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
			return false
		}
		if err != nil {
			l.failed(err)
			sleep(ctx, pause)
			pause = min(2*pause, maxRelisten)
			continue
		}
		pause = minRelisten
		heard.Store(true)
		switch message := message.(type) {
		case *redis.Message:
			l.notices.wake(message.Channel, false)
		case *redis.Subscription:
			if message.Kind == "subscribe" {
				l.notices.wake(message.Channel, true)
			}
		}
	}
}

// failed logs once that the server does not let the store listen. A server that is
// down, or not ready, is reported by all other calls.
func (l *listener) failed(err error) {
	if class := failure.Kind(err); class == "NOPERM" || class == "reply" {
		l.notices.warned.Do(func() {
			slog.Default().Warn("redisstore: no notifications: callers that wait find out by polling; Store.Check says what to do", "error", err)
		})
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
