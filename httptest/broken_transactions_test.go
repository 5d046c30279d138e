package latchtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/lock"
)

// anyBroken is a store that breaks a rule.
type anyBroken struct {
	rule, name string
	open       func() lock.Store
}

func allBroken() []anyBroken {
	all := brokenTransactors()
	for _, b := range brokenStores() {
		all = append(all, anyBroken{b.rule, b.name, func() lock.Store { return newBroken(b.breakIt) }})
	}
	return all
}

// transactor is a database in memory in which a step can be replaced.
type transactor struct {
	*faketx.Store
	begin func(ctx context.Context) (context.Context, error) // the context that it returns in place of the work's context
	each  func(tx *brokenTransaction)                        // breaks it
	renew func(ctx context.Context, key string, c lock.Claim) (bool, error)
}

func (s *transactor) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if s.renew != nil {
		return s.renew(ctx, key, c)
	}
	return s.Store.Renew(ctx, key, c)
}

func (s *transactor) Begin(ctx context.Context, key, token string) (work context.Context, _ lock.Transaction, err error) {
	tx := &brokenTransaction{store: s, key: key, token: token}
	_, tx.Transaction, err = s.Store.Begin(context.WithoutCancel(ctx), key, token)
	if err != nil {
		return nil, nil, err
	}
	if work, err = ctx, ctx.Err(); s.begin != nil {
		work, err = s.begin(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	tx.settle, tx.outcome, tx.rollback = tx.Transaction.Settle, tx.Transaction.Outcome, tx.Transaction.Rollback
	if s.each != nil {
		s.each(tx)
	}
	return work, tx, nil
}

type brokenTransaction struct {
	lock.Transaction

	store      *transactor
	key, token string
	settle     func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error)
	outcome    func(ctx context.Context) (bool, error)
	rollback   func(ctx context.Context) error
}

func (t *brokenTransaction) Settle(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
	return t.settle(ctx, receipt, keep)
}
func (t *brokenTransaction) Outcome(ctx context.Context) (bool, error) { return t.outcome(ctx) }
func (t *brokenTransaction) Rollback(ctx context.Context) error        { return t.rollback(ctx) }

// now returns the entry under the key.
func (t *brokenTransaction) now(ctx context.Context) lock.Entry {
	e, err := t.store.Get(context.WithoutCancel(ctx), t.key)
	if err != nil {
		panic(err)
	}
	return e
}

// each breaks every transaction of a store.
func each(breakIt func(tx *brokenTransaction)) func() lock.Store {
	return func() lock.Store { return &transactor{Store: faketx.New(), each: breakIt} }
}

// beginning is a store that begins transactions with another context.
func beginning(begin func(ctx context.Context) (context.Context, error)) func() lock.Store {
	return func() lock.Store { return &transactor{Store: faketx.New(), begin: begin} }
}

func brokenTransactors() []anyBroken {
	return slices.Concat(brokenReceiptsOfTransactions(), brokenOwnersOfTransactions(), brokenOutcomes())
}

func brokenReceiptsOfTransactions() []anyBroken {
	return []anyBroken{
		{"transaction_settle_keeps_receipt", "C strings", each(func(tx *brokenTransaction) {
			tx.settle = func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
				receipt, _, _ = bytes.Cut(receipt, []byte{0})
				return tx.Transaction.Settle(ctx, receipt, keep)
			}
		})},
		{"transaction_settle_keeps_receipt", "Outcome says no to what it need not ask", each(func(tx *brokenTransaction) {
			tx.outcome = func(context.Context) (bool, error) { return false, nil }
		})},
		{"transaction_settle_keeps_receipt", "Rollback after Settle undoes it", each(func(tx *brokenTransaction) {
			settled := false
			tx.settle = func(context.Context, []byte, time.Duration) (bool, error) { settled = true; return true, nil }
			tx.outcome = func(context.Context) (bool, error) { return settled, nil }
		})},
		{"transaction_receipt_expires", "kept for ever", each(func(tx *brokenTransaction) {
			tx.settle = func(ctx context.Context, receipt []byte, _ time.Duration) (bool, error) {
				return tx.Transaction.Settle(ctx, receipt, 1000*time.Hour)
			}
		})},
		{"transaction_receipt_expires", "kept for half", each(func(tx *brokenTransaction) {
			tx.settle = func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
				return tx.Transaction.Settle(ctx, receipt, keep/2)
			}
		})},
		{"transaction_rollback_leaves_claim", "the claim is a row of the transaction", each(func(tx *brokenTransaction) {
			tx.rollback = func(ctx context.Context) error {
				_, err := tx.store.Release(ctx, tx.key, lock.Claim{Token: tx.token})
				return errors.Join(err, tx.Transaction.Rollback(ctx))
			}
		})},
		{"transaction_rollback_leaves_claim", "COMMIT in place of ROLLBACK", each(func(tx *brokenTransaction) {
			tx.rollback = func(ctx context.Context) error {
				_, _ = tx.Transaction.Settle(ctx, nil, time.Hour)
				return nil
			}
		})},
		{"transaction_rollback_leaves_claim", "a second Rollback fails", each(func(tx *brokenTransaction) {
			over := false
			tx.rollback = func(ctx context.Context) error {
				if over {
					return errors.New("tx is closed")
				}
				over = true
				return tx.Transaction.Rollback(ctx)
			}
		})},
	}
}

func brokenOwnersOfTransactions() []anyBroken {
	free := func(tx *brokenTransaction, settles func(e lock.Entry) bool) {
		tx.settle = func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
			e := tx.now(ctx)
			if !settles(e) {
				return false, tx.Transaction.Rollback(ctx)
			}
			if e.State == lock.Free {
				e.Token = "new"
				if _, err := tx.store.Claim(ctx, tx.key, lock.Claim{Token: e.Token, Attempt: 1, Lease: time.Hour}); err != nil {
					return false, err
				}
			}
			return tx.store.Settle(ctx, tx.key, lock.Claim{Token: e.Token}, receipt, keep)
		}
	}
	return []anyBroken{
		{"transaction_settle_after_lapse", "only if it is remembered", each(func(tx *brokenTransaction) {
			free(tx, func(e lock.Entry) bool { return e.Token == tx.token })
		})},
		{"transaction_settle_after_takeover", "WHERE key = $1", each(func(tx *brokenTransaction) {
			free(tx, func(lock.Entry) bool { return true })
		})},
		{"transaction_settle_after_release", "an upsert", each(func(tx *brokenTransaction) {
			free(tx, func(e lock.Entry) bool { return e.State == lock.Free || e.Token == tx.token })
		})},
		{"transaction_open_blocks_no_call", "the row is locked from the beginning", func() lock.Store {
			s := &transactor{Store: faketx.New()}
			s.renew = func(ctx context.Context, key string, c lock.Claim) (bool, error) {
				if s.Open() > 0 {
					<-ctx.Done()
					return false, ctx.Err()
				}
				return s.Store.Renew(ctx, key, c)
			}
			return s
		}},
		{"transaction_two_at_once", "one session for all", func() lock.Store {
			s := &transactor{Store: faketx.New()}
			var mu sync.Mutex
			var last *brokenTransaction
			s.each = func(tx *brokenTransaction) {
				mu.Lock()
				defer mu.Unlock()
				last = tx
				tx.settle = func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
					mu.Lock()
					defer mu.Unlock()
					if last != tx {
						return false, tx.Transaction.Rollback(ctx)
					}
					return tx.Transaction.Settle(ctx, receipt, keep)
				}
			}
			return s
		}},
		{"transaction_context_is_derived", "from another one", beginning(func(ctx context.Context) (context.Context, error) {
			return context.Background(), ctx.Err()
		})},
		{"transaction_context_is_derived", "without its end", beginning(func(ctx context.Context) (context.Context, error) {
			return context.WithoutCancel(ctx), ctx.Err()
		})},
		{"transaction_context_is_derived", "begun all the same", beginning(func(ctx context.Context) (context.Context, error) { return ctx, nil })},
	}
}

func brokenOutcomes() []anyBroken {
	const takes = time.Second
	slowly := func(breakIt func(tx *brokenTransaction)) func() lock.Store {
		return func() lock.Store { return &transactor{Store: committing(faketx.Slow(takes)), each: breakIt} }
	}
	return []anyBroken{
		{"transaction_outcome_is_true", "whatever was cancelled was not applied", slowly(func(tx *brokenTransaction) {
			tx.settle = func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
				ok, err := tx.Transaction.Settle(ctx, receipt, keep)
				if err != nil {
					err = fmt.Errorf("%w: %w", lock.ErrNotApplied, err)
				}
				return ok, err
			}
		})},
		{"transaction_outcome_is_true", "no answer is a no", slowly(func(tx *brokenTransaction) {
			tx.settle = func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
				ok, _ := tx.Transaction.Settle(ctx, receipt, keep)
				return ok, nil
			}
		})},
		{"transaction_outcome_is_true", "and it was not committed", slowly(func(tx *brokenTransaction) {
			answered := false
			tx.settle = func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
				ok, err := tx.Transaction.Settle(ctx, receipt, keep)
				answered = err == nil
				return ok, err
			}
			tx.outcome = func(context.Context) (bool, error) { return answered, nil }
		})},
		{"transaction_outcome_is_true", "and it was committed", func() lock.Store {
			return &transactor{Store: committing(faketx.Hang, faketx.Slow(takes)), each: func(tx *brokenTransaction) {
				tx.outcome = func(ctx context.Context) (bool, error) { _, err := tx.Transaction.Outcome(ctx); return true, err }
			}}
		}},
		{"transaction_outcome_is_true", "it only reads", func() lock.Store {
			s := committing(faketx.Late(takes), faketx.Slow(takes))
			s.Trust()
			return s
		}},
		{"transaction_outcome_is_true", "it sleeps through the end of its context", slowly(func(tx *brokenTransaction) {
			tx.settle = func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
				time.Sleep(5 * takes)
				return tx.Transaction.Settle(context.WithoutCancel(ctx), receipt, keep)
			}
		})},
		{"transaction_outcome_is_true", "it changes its mind", slowly(func(tx *brokenTransaction) {
			asked := false
			tx.outcome = func(ctx context.Context) (bool, error) {
				committed, err := tx.Transaction.Outcome(ctx)
				if asked {
					return false, err
				}
				asked = true
				return committed, err
			}
		})},
	}
}
