package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// naiveStore is a simple store: each call is a command of the client, on the
// goroutine of its caller, with the caller's context.
type naiveStore struct{ client redis.UniversalClient }

func (s naiveStore) do(ctx context.Context, args ...any) (*redis.Cmd, error) {
	cmd := redis.NewCmd(ctx, args...)
	err := s.client.Process(ctx, cmd)
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return cmd, err
}

func (s naiveStore) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	was, err := s.do(ctx, "set", key, c.Token, "nx", "get", "px", c.Lease.Milliseconds())
	if err != nil {
		return lock.Entry{}, err
	}
	token, err := was.Text()
	if err != nil {
		token = c.Token
	}
	return lock.Entry{State: lock.Held, Token: token, Attempt: c.Attempt}, nil
}

func (s naiveStore) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return s.changes(ctx, "pexpire", key, c.Lease.Milliseconds())
}

func (s naiveStore) Settle(ctx context.Context, key string, c lock.Claim, _ []byte, keep time.Duration) (bool, error) {
	_, err := s.do(ctx, "set", key, c.Token, "px", keep.Milliseconds())
	return err == nil, err
}

func (s naiveStore) Release(ctx context.Context, key string, _ lock.Claim) (bool, error) {
	return s.changes(ctx, "del", key)
}

func (s naiveStore) changes(ctx context.Context, args ...any) (bool, error) {
	cmd, err := s.do(ctx, args...)
	return err == nil && cmd.Val() == int64(1), err
}

func (s naiveStore) Get(ctx context.Context, key string) (lock.Entry, error) {
	cmd, err := s.do(ctx, "get", key)
	if token, _ := cmd.Text(); err == nil && token != "" {
		return lock.Entry{State: lock.Held, Token: token}, nil
	}
	return lock.Entry{}, err
}

// The check can fail: a naive store fails it.
func TestNaiveStoreDoesNotEndWithinItsBudget(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick|testmain.NewerServers, "checks the test of budgets with a naive store")
	t.Parallel()
	kind, rows := clientKinds(t)["client"], slowRows()
	for _, what := range []string{"silence, ReadTimeout -1", "process hook takes 2 s", "CredentialsProvider takes 2 s", "Limiter.Allow takes 2 s"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			row := rows[what]
			found := strings.Join(row.play(t, kind, func(c redis.UniversalClient) lock.Store { return naiveStore{c} }, 1, 8), "\n")
			for _, op := range []string{"Acquire", "Release", "Settle", "Extend", "Once", "Get"} {
				require.Contains(t, found, "concurrent calls of "+op+" that returned late: ")
			}
		})
	}
}
