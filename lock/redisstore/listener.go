package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// pulse is the interval at which a listener checks whether a caller still waits,
// and whether its connection still works.
const pulse = 3 * time.Second

// A listener pauses after a failure, longer each time: no caller waits for it.
const (
	minRelisten = 100 * time.Millisecond
	maxRelisten = 5 * time.Second
)

var (
	errNoFeed = errors.New("the client sends every command itself")
	errMute   = errors.New("no answer to a PING")
)

// listener is the goroutine that subscribes to the channels, over a connection of
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
		for pause := minRelisten; ; pause = min(2*pause, maxRelisten) {
			began := time.Now()
			retired, err := l.session(ctx)
			if retired || ctx.Err() != nil {
				return
			}
			l.failed(err)
			if time.Since(began) > maxRelisten {
				pause = minRelisten
			}
			sleep(ctx, pause)
		}
	}()
	return l
}

// session listens over one connection until it fails, or no caller waits any more.
func (l *listener) session(ctx context.Context) (retired bool, err error) {
	feed, err := l.notices.nodes.listen(ctx)
	if err != nil {
		return l.notices.retire(), err
	}
	stop := context.AfterFunc(ctx, func() { _ = feed.Close() })
	defer stop()
	var heard atomic.Bool
	received, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		received <- l.receive(feed, &heard)
	}()
	defer func() {
		_ = feed.Close()
		<-ended
	}()
	l.notices.resubscribe()
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for asked := false; ; {
		select {
		case <-l.notices.changed:
			more, fewer := l.notices.takeChanges()
			err = errors.Join(feed.Send("unsubscribe", fewer), feed.Send("subscribe", more))
		case <-tick.C:
			switch {
			case l.notices.retire():
				return true, nil
			case heard.Swap(false):
				asked = false
			case asked:
				return false, errMute
			default:
				asked = true
				err = feed.Send("ping", []string{""})
			}
		case err = <-received:
		}
		if err != nil {
			return false, err
		}
	}
}

// receive wakes waiters until the connection ends.
func (l *listener) receive(feed *wire.Feed, heard *atomic.Bool) error {
	for {
		all, err := feed.Next()
		for _, message := range all {
			heard.Store(true)
			if refusal, is := message.(wire.Error); is {
				l.failed(refusal)
			}
			fields, _ := message.([]any)
			if len(fields) != 3 {
				continue
			}
			if channel, _ := fields[1].(string); fields[0] == "message" || fields[0] == "subscribe" {
				l.notices.wake(channel, fields[0] == "subscribe")
			}
		}
		if err != nil {
			return err
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

// listen makes a connection to one of the masters: each passes on what is published on any.
func (n *nodes) listen(ctx context.Context) (*wire.Feed, error) {
	masters, err := n.masters(ctx)
	if err != nil {
		return nil, err
	}
	of, own := masters[rand.IntN(len(masters))].transport.(*wire.Server) //nolint:gosec // no secret
	if !own {
		return nil, errNoFeed
	}
	return of.Feed(ctx)
}
