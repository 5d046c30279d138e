package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// pulse is how often a listener looks whether anybody still waits, and whether
// its connection still lives.
const pulse = 3 * time.Second

// A listener that fails pauses, longer each time: nobody waits for it.
const (
	minRelisten = 100 * time.Millisecond
	maxRelisten = 5 * time.Second
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
		n.left(l)
	}()
	return l
}

// session listens over one connection, and over those that go-redis makes in
// its place. again says that it is to be followed by another: a connection that
// has died without a word is not replaced by go-redis.
func (l *listener) session(parent context.Context) (again bool) {
	ctx, stop := context.WithCancel(parent)
	sub := l.notices.client.Subscribe(ctx)
	l.notices.renew()
	l.subscribe(ctx, sub)
	heard := new(atomic.Bool)
	received := make(chan struct{})
	go func() {
		defer close(received)
		l.receive(ctx, sub, heard)
	}()
	defer func() {
		stop()
		_ = sub.Close()
		<-received
	}()

	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for asked := false; ; {
		select {
		case <-l.notices.changed:
			l.subscribe(ctx, sub)
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
				l.ping(ctx, sub)
			}
		case <-received: // the client was closed
			return false
		case <-parent.Done():
			return false
		}
	}
}

// subscribe tells the server what has changed. What it does not hear, because
// there is no connection, go-redis repeats when there is one.
func (l *listener) subscribe(ctx context.Context, sub *redis.PubSub) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	more, fewer := l.notices.alterations()
	if len(fewer) > 0 {
		_ = sub.Unsubscribe(ctx, fewer...)
	}
	if len(more) > 0 {
		_ = sub.Subscribe(ctx, more...)
	}
}

func (*listener) ping(ctx context.Context, sub *redis.PubSub) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	_ = sub.Ping(ctx)
}

// receive wakes waiters until the subscription or the client is closed.
func (l *listener) receive(ctx context.Context, sub *redis.PubSub, heard *atomic.Bool) {
	pause := minRelisten
	for {
		message, err := sub.Receive(ctx)
		if ctx.Err() != nil || errors.Is(err, redis.ErrClosed) {
			return
		}
		if err != nil {
			l.failed(err)
			rest(ctx, pause)
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

// failed says once that the server does not let the store listen. That it is
// not there, or not ready, everything else says.
func (l *listener) failed(err error) {
	if class := kind(err); class == "NOPERM" || class == "reply" {
		l.notices.warned.Do(func() {
			slog.Default().Warn("redisstore: no notifications: callers that wait find out by polling; Store.Check says what to do", "error", err)
		})
	}
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
