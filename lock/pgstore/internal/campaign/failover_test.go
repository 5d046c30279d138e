package campaign_test

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
)

var failoversFlag = flag.Int("campaign.failovers", 6, "how many failovers there are of each kind")

// Services order through the middleware, by four routes, while faults strike as in TestOnce.
// Again and again the primary dies and its standby takes its place. With a synchronous standby, the
// survivor has a row with the same answer for each order that was answered, and no other row. With
// an asynchronous one answers may be lost, which are counted, and nothing else.
func TestFailovers(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "fails over between two servers")
	t.Parallel()
	for name, waits := range map[string]bool{"synchronous": true, "asynchronous": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := *once.SeedFlag
			if seed == 0 {
				seed = uint64(time.Now().UnixNano())
			}
			w := startPair(t, waits, seed, nil)
			for w.round < *failoversFlag {
				w.failover()
				if wrong := w.check(); len(wrong) > 0 {
					require.Empty(t, wrong, "%s", w.report(seed))
				}
			}
			once.Save(t, "postgres-"+name+"-standby", w.report(seed))
		})
	}
}

// The twins: the same check finds each of them.
func TestFailoversCatch(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "fails over between two servers")
	for name, broken := range failoverTwins {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startPair(t, true, uint64(time.Now().UnixNano()), broken)
			w.patience = 10 * time.Second // they may not find out
			w.troubles = slices.DeleteFunc(slices.Clone(troubles), func(tr trouble) bool { return !strings.HasPrefix(tr.name, "the link is cut") })
			for w.round < 60 {
				w.failover()
				if wrong := w.check(); len(wrong) > 0 {
					t.Logf("failover %d: %s", w.round, wrong[0])
					return
				}
			}
			t.Fatal("it was not found out")
		})
	}
}

// failoverTwins are stores that a failover makes wrong.
var failoverTwins = map[string]func(*pgstore.Store, *pgxpool.Pool) lock.Store{
	"asks by reading": func(s *pgstore.Store, pool *pgxpool.Pool) lock.Store {
		return asks{s, func(ctx context.Context, key, token string) (committed bool, err error) {
			err = pool.QueryRow(ctx, "SELECT receipt IS NOT NULL FROM latch_entries WHERE key = $1 AND token = $2", []byte(key), []byte(token)).Scan(&committed)
			return committed, ignoreNoRows(err)
		}}
	},
	"its context may cancel COMMIT": func(s *pgstore.Store, pool *pgxpool.Pool) lock.Store {
		return asks{naive{s, pool, func(ctx context.Context, tx pgx.Tx, key, token string, receipt []byte, keep time.Duration) (bool, error) {
			tag, err := tx.Exec(ctx, "UPDATE latch_entries SET receipt = $3, linger = 0, ends_at = clock_timestamp() + $4 * interval '1 microsecond' WHERE key = $1 AND token = $2 AND receipt IS NULL AND attempt > 0",
				[]byte(key), []byte(token), receipt, float64(keep.Microseconds()))
			if err != nil || tag.RowsAffected() == 0 {
				return false, errors.Join(lock.ErrNotApplied, err)
			}
			err = tx.Commit(ctx)
			return err == nil, err
		}}, func(ctx context.Context, key, token string) (committed bool, err error) {
			err = pool.QueryRow(ctx, "UPDATE latch_entries SET attempt = CASE WHEN receipt IS NULL THEN -abs(attempt) ELSE attempt END WHERE key = $1 AND token = $2 RETURNING receipt IS NOT NULL",
				[]byte(key), []byte(token)).Scan(&committed)
			return committed, ignoreNoRows(err)
		}}
	},
	"replays what it reads": func(s *pgstore.Store, pool *pgxpool.Pool) lock.Store { return looks{s, pool} },
}

func ignoreNoRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	return err
}

type transactor interface {
	lock.Store
	lock.Transactor
}

// asks asks for the outcome of a commit with its own function.
type asks struct {
	transactor

	outcome func(ctx context.Context, key, token string) (committed bool, err error)
}

func (s asks) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	work, tx, err := s.transactor.Begin(ctx, key, token)
	if err != nil {
		return nil, nil, err
	}
	return work, asksTx{tx, s, key, token}, nil
}

type asksTx struct {
	lock.Transaction

	s          asks
	key, token string
}

func (t asksTx) Outcome(ctx context.Context) (committed bool, err error) {
	return t.s.outcome(ctx, t.key, t.token)
}

// looks answers by a receipt as soon as it can be read.
type looks struct {
	*pgstore.Store

	pool *pgxpool.Pool
}

func (s looks) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e := lock.Entry{State: lock.Settled, Left: time.Hour}
	err := s.pool.QueryRow(ctx, "SELECT fingerprint, receipt FROM latch_entries WHERE key = $1 AND receipt IS NOT NULL", []byte(key)).
		Scan(&e.Fingerprint, &e.Receipt)
	if err == nil {
		return e, nil
	}
	return s.Store.Claim(ctx, key, c)
}
