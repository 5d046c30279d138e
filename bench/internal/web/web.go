// Package web has the order desks that are compared over HTTP: one handler that
// does nothing but answer POST /orders, bare and behind each guard, on net/http
// and on fiber, and the client that asks them.
package web

import (
	"context"
	"io"
	"net/http"

	"github.com/httplatch/httplatch/bench/internal/peer"
)

// Answer is the body of every order that was made, with status 201.
const Answer = `{"id":"6J25NBC6PSYZRTTN7RBQMAPK55","user":"42","sku":"tea","quantity":1}`

// Desk is one way to guard the handler.
type Desk struct {
	Name string
	// Open starts it on a free port. work is done for every order that is made.
	Open func(ctx context.Context, t peer.Target, work func()) (*Service, error)
}

// Names of desks.
const (
	Bare            = "net/http, bare"
	LockMemory      = "Lock, memory"
	LockRedis       = "Lock, Redis"
	ByHandGoRedis   = "SET NX + EVALSHA by hand, go-redis"
	ByHandRueidis   = "SET NX + EVALSHA by hand, rueidis"
	OnceMemory      = "Idempotent, memory"
	OnceRedis       = "Idempotent, Redis"
	FiberBare       = "fiber, bare"
	FiberOnceMemory = "fiber idempotency, memory"
	FiberOnceRedis  = "fiber idempotency, Redis"
)

// All are the desks.
func All() []Desk {
	return []Desk{
		{Bare, openBare},
		{LockMemory, inMemory(lockGuard)},
		{LockRedis, onRedis(lockGuard)},
		{ByHandGoRedis, openByHandGoRedis},
		{ByHandRueidis, openByHandRueidis},
		{OnceMemory, inMemory(onceGuard)},
		{OnceRedis, onRedis(onceGuard)},
		{FiberBare, openFiberBare},
		{FiberOnceMemory, openFiberMemory},
		{FiberOnceRedis, openFiberRedis},
	}
}

// Named returns the desk of that name.
func Named(name string) (Desk, bool) {
	for _, d := range All() {
		if d.Name == name {
			return d, true
		}
	}
	return Desk{}, false
}

// Service is a desk that is open.
type Service struct {
	Addr  string
	close func(ctx context.Context) error
}

// Close ends it and whatever it has opened.
func (s *Service) Close(ctx context.Context) error { return s.close(ctx) }

// handler takes orders.
func handler(work func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		work()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, Answer)
	})
}
