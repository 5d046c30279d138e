package lock

import (
	"context"
	"errors"
	"fmt"
)

// What a store can do beyond the five methods of [Store].
type (
	// watcher has hints for those who wait.
	watcher interface {
		Watch(key string) (wake <-chan struct{}, stop func())
	}
	// checker says whether it is fit for use.
	checker interface {
		Check(ctx context.Context) error
	}
	// serverNamer names the servers that it writes to.
	serverNamer interface {
		Servers(ctx context.Context) (ids []string, err error)
	}
	// pager is an [Inspector] that lists in steps.
	pager interface {
		Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []Entry, next string, err error)
	}
	// sized is in this process, and knows what it keeps.
	sized interface {
		size() (entries int, bytes int64)
	}
)

// isPrompt reports whether the calls of store never wait for anything.
func isPrompt(store Store) bool {
	s, ok := store.(interface{ prompt() bool })
	return ok && s.prompt()
}

// hintsOf returns the Watch of s, or one that never has a hint.
func hintsOf(s Store) func(key string) (wake <-chan struct{}, stop func()) {
	if s, ok := s.(watcher); ok {
		return s.Watch
	}
	return func(string) (<-chan struct{}, func()) { return nil, func() {} }
}

// checkOf is the Check of s, or a Get if it has none.
func checkOf(ctx context.Context, s Store) error {
	if c, ok := s.(checker); ok {
		return c.Check(ctx)
	}
	_, err := s.Get(ctx, "check")
	return err
}

// pageOf is the Page of below, for one that wraps it.
func pageOf(ctx context.Context, below Inspector, cursor string, limit int, match func(key string) bool) (page []Entry, next string, err error) {
	pages, ok := below.(pager)
	if !ok {
		return nil, "", fmt.Errorf("lock: the store lists no pages: %w", errors.ErrUnsupported)
	}
	return pages.Page(ctx, cursor, limit, match)
}
