package sqlshop

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// Work is the work of a handler in its transaction, and its result.
type Work struct {
	Do   func(ctx context.Context, s *Shop) error
	Rows []string // that are committed with the receipt, in any order
	Says string   // a part of the error of a transaction that is rolled back, after which the next try runs; "": it is committed
	Own  bool     // it is the error that the work returns
	May  bool     // the error says that the next try may succeed
}

// Statements returns work that executes statements until one fails.
func Statements(all ...string) func(ctx context.Context, s *Shop) error {
	return func(ctx context.Context, s *Shop) error {
		for _, statement := range all {
			if err := s.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}
}

// Around returns work that makes the orders "first" and "second", and between them executes statements
// whose errors it ignores.
func Around(all ...string) func(ctx context.Context, s *Shop) error {
	return func(ctx context.Context, s *Shop) error {
		if err := s.Exec(ctx, s.Insert, "first"); err != nil {
			return err
		}
		for _, statement := range all {
			_ = s.Exec(ctx, statement)
		}
		_ = s.Exec(ctx, s.Insert, "second")
		return nil
	}
}

var errWork = errors.New("the work fails")

// works are the cases for every store.
var works = map[string]Work{
	"nothing":             {Do: Statements()},
	"an order":            {Do: Around(), Rows: []string{"first", "second"}},
	"an error":            {Do: func(ctx context.Context, s *Shop) error { return errors.Join(s.Exec(ctx, s.Insert, "x"), errWork) }, Says: "the work fails", Own: true},
	"savepoint left open": {Do: Around("SAVEPOINT a"), Rows: []string{"first", "second"}},
	"savepoint":           {Do: Around("SAVEPOINT a", "INSERT INTO orders (name) VALUES ('undone')", "ROLLBACK TO SAVEPOINT a", "RELEASE SAVEPOINT a"), Rows: []string{"first", "second"}},
	"deferred Rollback": {Do: func(ctx context.Context, s *Shop) error {
		if tx := s.Tx(ctx); tx != nil {
			defer func() { _ = tx.Rollback() }()
		}
		return s.Exec(ctx, s.Insert, "first")
	}, Rows: []string{"first"}},
	"Commit": {Do: func(ctx context.Context, s *Shop) error {
		err := s.Exec(ctx, s.Insert, "first")
		if tx := s.Tx(ctx); tx != nil && tx.Commit() == nil {
			return errors.New("it was committed")
		}
		return err
	}, Rows: []string{"first"}},
	"prepared statement": {Do: func(ctx context.Context, s *Shop) error {
		tx := s.Tx(ctx)
		if tx == nil {
			return Around()(ctx, s)
		}
		stmt, err := tx.PrepareContext(ctx, s.Insert)
		if err != nil {
			return err
		}
		defer func() { _ = stmt.Close() }()
		for _, name := range []string{"first", "second"} {
			if _, err := stmt.ExecContext(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}, Rows: []string{"first", "second"}},
}

// TestWorks runs works and more, as programs write them. Nothing that a work does to its
// transaction makes an answer without its rows, or rows without their answer.
func TestWorks(t *testing.T, open func(t *testing.T) *Shop, more map[string]Work) {
	t.Helper()
	all := maps.Clone(works)
	maps.Copy(all, more)
	for name, tt := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			require.ErrorIs(t, s.Exec(t.Context(), s.Insert, "x"), ErrNoTx)
			l := Locker(t, s.Store)
			receipt, replayed, err := l.Once(t.Context(), "k", nil, func(ctx context.Context) ([]byte, error) { return []byte("receipt"), tt.Do(ctx, s) })
			require.False(t, replayed)
			if tt.Says == "" {
				require.NoError(t, err)
				require.Equal(t, "receipt", string(receipt))
				require.ElementsMatch(t, tt.Rows, s.Orders(t))
				receipt, replayed, err = l.Once(t.Context(), "k", nil, s.Order("again"))
				require.NoError(t, err)
				require.True(t, replayed)
				require.Equal(t, "receipt", string(receipt))
				require.ElementsMatch(t, tt.Rows, s.Orders(t))
			} else {
				require.ErrorContains(t, err, tt.Says)
				if !tt.Own {
					require.ErrorIs(t, err, lock.ErrNotApplied)
					require.Equal(t, tt.May, errors.Is(err, lock.ErrUnavailable), "%v", err)
				}
				require.Empty(t, s.Orders(t))
				_, replayed, err = l.Once(t.Context(), "k", nil, s.Order("next"))
				require.NoError(t, err)
				require.False(t, replayed)
				require.Equal(t, []string{"next"}, s.Orders(t))
			}
			if s.InTx != nil {
				require.Eventually(t, func() bool { return s.InTx(t) == 0 }, 20*time.Second, 5*time.Millisecond, "its connection is closed")
			}
		})
	}
}
