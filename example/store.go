package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// prefix is what the names of the desk's entries begin with. It names the service:
// another one with the same prefix on the same Redis would get the desk's answers.
const prefix = "desk:"

// openTimeout bounds how long the store may take to answer at the start.
const openTimeout = 5 * time.Second

// openStore opens the Redis that the URL names, a quorum of several, or the
// embedded store without any. Calls on it have budget.
func openStore(ctx context.Context, urls []string, budget time.Duration) (store lock.Store, closeStore func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	switch len(urls) {
	case 0:
		return memstore.New(), func() error { return nil }, nil
	case 1:
		shared, err := redisstore.Open(ctx, urls[0], redisstore.WithPrefix(prefix))
		if err != nil {
			return nil, nil, fmt.Errorf("opening the store: %w", err)
		}
		return shared, shared.Close, nil
	}
	return openQuorum(ctx, urls, budget)
}

// openQuorum opens independent masters, of which a minority may be down: a desk
// that is started again then must not wait for them.
func openQuorum(ctx context.Context, urls []string, budget time.Duration) (lock.Store, func() error, error) {
	var nodes []lock.Store
	var masters []*redisstore.Store
	closeAll := func() error {
		var errs []error
		for _, m := range masters {
			errs = append(errs, m.Close())
		}
		return errors.Join(errs...)
	}
	for i, url := range urls {
		master, err := redisstore.Open(ctx, url, redisstore.WithPrefix(prefix), redisstore.WithoutCheck())
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("opening the store, -redis number %d: %w", i+1, err), closeAll())
		}
		masters, nodes = append(masters, master), append(nodes, master)
	}
	// A node that is silent costs a part of the budget, and leaves time to ask
	// again.
	majority := quorum.New(nodes, quorum.WithNodeTimeout(budget/5))
	if err := majority.Check(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("opening the store: %w", err), closeAll())
	}
	return majority, closeAll, nil
}
