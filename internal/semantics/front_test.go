package semantics_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// front is a store as one process sees it, whose link can fail.
type front struct {
	lock.Store
	dead   atomic.Bool // nothing more arrives: the process has died, or the link
	brief  bool        // claims get a lease of a millisecond, so that no row waits for the end of one
	silent atomic.Bool // settles are applied, and their answers lost
	full   atomic.Bool // claims find no room

	mu    sync.Mutex
	key   string // of the last claim
	token string
}

var errDead = fmt.Errorf("%w: the link is down", lock.ErrNotApplied)

func (f *front) mend() {
	f.dead.Store(false)
	f.silent.Store(false)
	f.full.Store(false)
}

func (f *front) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	switch {
	case f.dead.Load():
		return lock.Entry{}, errDead
	case f.full.Load():
		return lock.Entry{}, lock.ErrFull
	case f.brief:
		c.Lease = time.Millisecond
	}
	f.mu.Lock()
	f.key, f.token = key, c.Token
	f.mu.Unlock()
	return f.Store.Claim(ctx, key, c)
}

func (f *front) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if f.dead.Load() {
		return false, errDead
	}
	return f.Store.Renew(ctx, key, c)
}

func (f *front) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	if f.dead.Load() {
		return false, errDead
	}
	ok, err := f.Store.Settle(ctx, key, c, receipt, keep)
	if f.silent.Load() {
		return false, errors.New("the answer was lost")
	}
	return ok, err
}

func (f *front) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if f.dead.Load() {
		return false, errDead
	}
	return f.Store.Release(ctx, key, c)
}

// claimed is the last claim that went through.
func (f *front) claimed() (key, token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key, f.token
}
