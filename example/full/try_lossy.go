package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/httplatch/httplatch/lock"
)

// lossyStore is the desk's store behind a network that loses the reply to a
// claim where the request asks for it: the incident. The claim is applied, and
// its caller waits until its budget is over.
type lossyStore struct{ lock.Store }

// Claim is part of [lock.Store].
func (s lossyStore) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	claims, _ := ctx.Value(claimsKey{}).(*claimLog)
	lost := claims.loseNext()
	e, err := s.Store.Claim(ctx, key, c)
	granted := err == nil && e.State == lock.Held && e.Token == c.Token
	switch {
	case lost:
		if granted {
			claims.note("lost")
		} else {
			claims.note("unheard")
		}
		<-ctx.Done()
		return lock.Entry{}, fmt.Errorf("the reply to a claim was lost, as asked for: %w", ctx.Err())
	case err != nil:
		claims.note("failed")
	case granted:
		claims.note("granted")
	default:
		claims.note("refused")
	}
	return e, err
}

// Begin is part of [lock.Transactor], which the store below is unless Describe says no.
func (s lossyStore) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	return s.Store.(lock.Transactor).Begin(ctx, key, token) //nolint:errcheck,forcetypeassert // the Locker has asked Describe
}

// Describe is the description of the store below, but not Local, since calls
// wait for the lost reply. No claim arrives later because of it.
func (s lossyStore) Describe() lock.Description {
	about := lock.Describe(s.Store)
	about.Local = false
	return about
}

// claimLog has the outcomes of the claims of one request. A nil claimLog notes
// nothing.
type claimLog struct {
	mu   sync.Mutex
	lose bool // the reply to the next one
	all  []string
}

type claimsKey struct{}

// withClaimLog returns a context in which claims are noted, and in which the
// reply to the first is lost, if asked for.
func withClaimLog(ctx context.Context, lose bool) (context.Context, *claimLog) {
	l := &claimLog{lose: lose}
	return context.WithValue(ctx, claimsKey{}, l), l
}

func (l *claimLog) loseNext() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	lose := l.lose
	l.lose = false
	return lose
}

func (l *claimLog) note(what string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, what)
}

// String lists the claims so far: "lost, granted".
func (l *claimLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, ", ")
}
