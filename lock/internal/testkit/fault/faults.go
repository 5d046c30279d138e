// Package fault is for tests of package lock and of its stores: a store whose calls meet faults of
// a network, chosen by a test ([Store]) or at random ([Network]), and random work over it ([Work]).
package fault

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Op is a method of [lock.Store].
type Op string

// The methods of a store.
const (
	Claim   Op = "claim"
	Renew   Op = "renew"
	Settle  Op = "settle"
	Release Op = "release"
	Get     Op = "get"
	Amend   Op = "amend" // of a [lock.Amender]
)

var ops = []Op{Claim, Renew, Settle, Release, Get, Amend}

// Func is a fault of one call. apply makes the call at the store.
type Func func(ctx context.Context, apply func() error) error

// LoseReply applies the call, and returns an unknown outcome.
func LoseReply(_ context.Context, apply func() error) error { _ = apply(); return io.EOF }

// LoseRequest does not apply the call, and returns an unknown outcome.
func LoseRequest(context.Context, func() error) error { return io.EOF }

// Refuse does not apply the call, and returns an error that says so.
func Refuse(context.Context, func() error) error {
	return errors.Join(lock.ErrNotApplied, errors.New("READONLY"))
}

// HangReply applies the call, and returns when its caller gives up.
func HangReply(ctx context.Context, apply func() error) error {
	_ = apply()
	<-ctx.Done()
	return ctx.Err()
}

// HangRequest does not apply the call, and returns when its caller gives up.
func HangRequest(ctx context.Context, _ func() error) error { <-ctx.Done(); return ctx.Err() }

// Slow applies the call, and answers after d.
func Slow(d time.Duration) Func {
	return func(ctx context.Context, apply func() error) error {
		err := apply()
		Sleep(ctx, d)
		return err
	}
}

// Late returns when its caller gives up, and applies the call d after its arrival.
func Late(d time.Duration) Func {
	return func(ctx context.Context, apply func() error) error {
		time.AfterFunc(d, func() { _ = apply() })
		<-ctx.Done()
		return ctx.Err()
	}
}

// Stuck applies the call after d, and returns only then, even if its caller gives up before: the
// time-out of the client library is longer.
func Stuck(d time.Duration) Func {
	return func(_ context.Context, apply func() error) error {
		time.Sleep(d)
		_ = apply()
		return io.EOF
	}
}

// Sleep waits for d, or until ctx ends. It makes no timer that has fired already: reading one has
// crashed Go 1.26 with the race detector, inside a bubble of synctest.
func Sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
