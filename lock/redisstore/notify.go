package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
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
// [WithNotifications], over a client that sends every command itself, and after Close, the channel is
// nil. A [lock.Locker] watches for callers that wait.
func (s *Store) Watch(key string) (wake <-chan struct{}, stop func()) {
	if s.notices == nil || !s.nodes.own() {
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

const (
	// pulse is the interval at which the listener checks whether a caller still waits, and sends a PING. A
	// connection is given up after two without a message.
	pulse = 3 * time.Second

	// relisten is the pause of the listener after a failure. Callers that wait poll meanwhile.
	relisten = 500 * time.Millisecond
)

// notices keeps the channels of the keys that callers wait for, and wakes the callers. While there are
// callers, and up to a pulse longer, a goroutine listens over a connection of its own.
type notices struct {
	nodes  *nodes
	open   context.Context //nolint:containedctx // of the listener, which serves many waiters; ended by close
	shut   context.CancelFunc
	warned sync.Once

	mu         sync.Mutex
	waiting    map[string]map[chan struct{}]struct{} // callers, by channel
	subscribed map[string]bool                       // channels of the listener; true: confirmed
	changed    chan struct{}                         // has a value when subscriptions may have to change
	listening  chan struct{}                         // closed when the listener has ended; nil if there is none
}

func newNotices(n *nodes) *notices {
	open, shut := context.WithCancel(context.Background()) //nolint:forbidigo // see open
	waiting, subscribed := make(map[string]map[chan struct{}]struct{}), make(map[string]bool)
	return &notices{nodes: n, open: open, shut: shut, waiting: waiting, subscribed: subscribed, changed: make(chan struct{}, 1)}
}

func (n *notices) watch(channel string) (wake <-chan struct{}, stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open.Err() != nil {
		return nil, func() {}
	}
	w := make(chan struct{}, 1)
	if n.waiting[channel] == nil {
		n.waiting[channel] = make(map[chan struct{}]struct{})
		notify(n.changed)
	}
	n.waiting[channel][w] = struct{}{}
	if n.subscribed[channel] {
		notify(w) // the confirmation has already woken the waiters before this one
	}
	if n.listening == nil {
		n.listening = make(chan struct{})
		go n.listen(n.listening)
	}
	return w, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if delete(n.waiting[channel], w); len(n.waiting[channel]) == 0 {
			delete(n.waiting, channel)
			notify(n.changed)
		}
	}
}

// notify gives c a value, unless it has one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wake notifies the waiters of a message on channel, or of the beginning of
// its subscription: earlier events were not reported.
func (n *notices) wake(channel string, begun bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, asked := n.subscribed[channel]; asked && begun {
		n.subscribed[channel] = true
	}
	for w := range n.waiting[channel] {
		notify(w)
	}
}

// close ends the listener, and waits until it or ctx has ended.
func (n *notices) close(ctx context.Context) {
	n.shut()
	n.mu.Lock()
	ended := n.listening
	n.mu.Unlock()
	if ended == nil {
		return
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// listen is the listener: it subscribes over one connection after another, until no caller waits any more.
func (n *notices) listen(ended chan struct{}) {
	defer close(ended)
	for {
		retired, err := n.session()
		if retired || n.open.Err() != nil {
			return
		}
		n.failed(err)
		pause, end := context.WithTimeout(n.open, relisten)
		<-pause.Done()
		end()
	}
}

// session listens over one connection until it fails, or no caller waits any more.
func (n *notices) session() (retired bool, err error) {
	feed, err := n.nodes.listen(n.open)
	if err != nil {
		return n.retire(), err
	}
	received := make(chan error, 1)
	go func() {
		defer close(received)
		received <- n.receive(feed)
	}()
	defer func() {
		_ = feed.Close()
		for range received { // until the goroutine has ended
		}
	}()
	n.mu.Lock()
	clear(n.subscribed) // a new connection has no subscription
	notify(n.changed)
	n.mu.Unlock()
	tick := time.NewTicker(pulse)
	defer tick.Stop()
	for err == nil {
		select {
		case <-n.changed:
			more, fewer := n.takeChanges()
			err = errors.Join(feed.Send("unsubscribe", fewer), feed.Send("subscribe", more))
		case <-tick.C:
			if n.retire() {
				return true, nil
			}
			err = feed.Send("ping", []string{""})
		case err = <-received:
		case <-n.open.Done():
			err = n.open.Err()
		}
	}
	return false, err
}

// takeChanges returns the channels to subscribe to, and those to leave.
func (n *notices) takeChanges() (subscribe, unsubscribe []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for channel := range n.subscribed {
		if n.waiting[channel] == nil {
			delete(n.subscribed, channel)
			unsubscribe = append(unsubscribe, channel)
		}
	}
	for channel := range n.waiting {
		if _, asked := n.subscribed[channel]; !asked {
			n.subscribed[channel] = false
			subscribe = append(subscribe, channel)
		}
	}
	return subscribe, unsubscribe
}

// retire ends the listener if no caller waits.
func (n *notices) retire() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) == 0 {
		n.listening = nil
	}
	return n.listening == nil
}

// receive wakes waiters until the connection ends.
func (n *notices) receive(feed *wire.Feed) error {
	for {
		_ = feed.SetReadDeadline(time.Now().Add(2 * pulse))
		all, err := feed.Next()
		for _, message := range all {
			if refusal, is := message.(wire.Error); is {
				n.failed(refusal)
			}
			fields, _ := message.([]any)
			if len(fields) != 3 {
				continue
			}
			if channel, _ := fields[1].(string); fields[0] == "message" || fields[0] == "subscribe" {
				n.wake(channel, fields[0] == "subscribe")
			}
		}
		if err != nil {
			return err
		}
	}
}

// failed logs once that the server does not let the store listen. A server that is
// down, or not ready, is reported by all other calls.
func (n *notices) failed(err error) {
	if class := failure.Kind(err); class == "NOPERM" || class == "reply" {
		n.warned.Do(func() {
			slog.Default().Warn("redisstore: no notifications: callers that wait find out by polling; Store.Check says what to do", "error", err)
		})
	}
}

// listen makes a connection to one of the masters: each passes on what is published on any.
func (n *nodes) listen(ctx context.Context) (*wire.Feed, error) {
	masters, err := n.masters(ctx)
	if err != nil {
		return nil, err
	}
	of := masters[rand.IntN(len(masters))].own() //nolint:gosec // no secret
	if of == nil {
		return nil, errors.ErrUnsupported
	}
	return of.Feed(ctx)
}
