package day

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// guardFunc is a guard that needs nothing.
type guardFunc func(ctx context.Context, q *request) answer

func (f guardFunc) serve(ctx context.Context, q *request) answer { return f(ctx, q) }

func (guardFunc) close(context.Context) {}

// Broken are guards that each break the promise they are named for.
func Broken() (all []Contender) {
	for name, serve := range map[string]guardFunc{
		"placed twice": func(ctx context.Context, q *request) answer {
			if q.desk.work(ctx, q) != nil {
				return failed
			}
			return placed
		},
		"orders placed twice": func(ctx context.Context, q *request) answer { // when the customer has left
			if q.desk.work(ctx, q) != nil {
				return failed
			}
			go func() {
				time.Sleep(5 * time.Second)
				q.order.place(q.desk.name)
			}()
			return placed
		},
		"false answers: placed": func(ctx context.Context, q *request) answer {
			_ = q.desk.work(ctx, q)
			return placed
		},
		"false answers: not placed": func(ctx context.Context, q *request) answer {
			_ = q.desk.work(ctx, q)
			return failed
		},
		"lost": func(context.Context, *request) answer { return refused },
	} {
		all = append(all, Contender{
			Name: name,
			open: func(context.Context, site) (guard, error) { return serve, nil },
		})
	}
	return all
}

// broken is a store through which a Locker fails to keep a promise.
type broken struct {
	lock.Store
	claim   func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error)
	release func(ctx context.Context, key string, c lock.Claim) (bool, error)
}

func (b *broken) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	return b.claim(ctx, key, c)
}

func (b *broken) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return b.release(ctx, key, c)
}

// noRecovery neither sends a claim again nor removes what it may have left: what a
// lock does that takes an error for an answer.
func noRecovery(s lock.Store) lock.Store {
	b := noCleanUp(s).(*broken) //nolint:errcheck,forcetypeassert // it is
	claim := b.claim
	b.claim = func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
		e, err := claim(ctx, key, c)
		if err != nil {
			err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err) // which no Locker repeats
		}
		return e, err
	}
	return b
}

// noCleanUp releases only what was granted.
func noCleanUp(s lock.Store) lock.Store {
	var mu sync.Mutex
	granted := make(map[string]bool) // tokens
	return &broken{
		Store: s,
		claim: func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
			e, err := s.Claim(ctx, key, c)
			if err == nil && e.Token == c.Token {
				mu.Lock()
				granted[c.Token] = true
				mu.Unlock()
			}
			return e, err
		},
		release: func(ctx context.Context, key string, c lock.Claim) (bool, error) {
			mu.Lock()
			ours := granted[c.Token]
			mu.Unlock()
			if !ours {
				return true, nil
			}
			ok, err := s.Release(ctx, key, c)
			if err == nil {
				mu.Lock()
				delete(granted, c.Token)
				mu.Unlock()
			}
			return ok, err
		},
	}
}

// heldIfUnknown takes a claim without an answer for one that was refused.
func heldIfUnknown(s lock.Store) lock.Store {
	return &broken{
		Store:   s,
		release: s.Release,
		claim: func(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
			e, err := s.Claim(ctx, key, c)
			if err != nil && !errors.Is(err, lock.ErrNotApplied) {
				return lock.Entry{State: lock.Held, Token: "another's", Owner: "another", Left: time.Second}, nil
			}
			return e, err
		},
	}
}

// noRepeat takes a release without an answer for one that was answered.
func noRepeat(s lock.Store) lock.Store {
	return &broken{
		Store: s,
		claim: s.Claim,
		release: func(ctx context.Context, key string, c lock.Claim) (bool, error) {
			ok, err := s.Release(ctx, key, c)
			return ok || err != nil, nil
		},
	}
}
