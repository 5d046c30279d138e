package redisstore

import (
	"context"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// WithNotifications notifies callers that wait ([lock.WithWait]) when another process has
// released or settled their key, by Redis' publish and subscribe. They claim the key within a
// round trip or two, instead of at their next poll, which is up to half a second away. They also
// poll less often, at intervals of up to two seconds.
//
//	store, err := redisstore.Open(ctx, url, redisstore.WithNotifications())
//	...
//	locker := lock.New(store, lock.WithWait(2*time.Second))
//
// Holders publish when they release, and waiters listen, so all processes that share keys should
// have the option. If one of them lacks it, or a message is lost, the waiter gets the key at its
// next poll.
//
// Every release and settle publishes a message on the channel that has the name of the entry. A
// Cluster sends it to all its nodes. While a caller waits, and for some seconds after, the store
// has one more connection. [Store.Close] closes it at once, so call it after [New], too. The user
// needs the permissions in the package documentation. Without the permission to publish, keys are
// still released. Over a client that sends every command itself, such as a wrapper, the store
// publishes, and its own callers poll.
func WithNotifications() Option {
	return option(func(s *Store) { s.notices = newNotices(s.nodes) })
}

// Watch returns a channel that gets a value when the watch has begun, and later whenever the
// entry of key may have been released or settled. It never blocks. stop ends the watch. Without
// [WithNotifications], over a client that sends every command itself, and after Close, the channel is nil. A [lock.Locker] watches for callers
// that wait.
func (s *Store) Watch(key string) (wake <-chan struct{}, stop func()) {
	if s.notices == nil || !s.nodes.listens() {
		return nil, func() {}
	}
	name, _ := entry.Name(s.prefix, key)
	return s.notices.watch(name)
}

// checkSubscribe tries the commands of the listener, on its own connection.
func (s *Store) checkSubscribe(ctx context.Context, channel string, f *findings) {
	feed, err := s.nodes.listen(ctx)
	if err != nil {
		return // other commands find out why
	}
	defer func() { _ = feed.Close() }()
	defer context.AfterFunc(ctx, func() { _ = feed.Close() })()
	_ = feed.SetReadDeadline(time.Now().Add(openTimeout))
	for _, name := range []string{"subscribe", "unsubscribe"} {
		err := feed.Send(name, []string{channel})
		for answers := []any(nil); err == nil && len(answers) == 0; {
			if answers, err = feed.Next(); len(answers) > 0 {
				if refusal, is := answers[0].(wire.Error); is {
					err = refusal
				}
			}
		}
		if err != nil && !strings.HasPrefix(err.Error(), "NOSUB") { // Valkey 8.0: permitted, without a subscription to end
			f.failed(strings.ToUpper(name), failure.NotApplied(failure.Kind(err), err))
		}
	}
}
