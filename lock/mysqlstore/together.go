package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// claimsAtOnce bounds the claims that share their statements.
const claimsAtOnce = 64

// asked is a claim that shares its statements with others, and their result for it. It outlives the call
// of a caller that leaves.
type asked struct {
	key     string
	entry   expression // the values of its row
	inserts bool       // it inserts its row if there is none: it draws no fence, and replaces no entry

	row     *rowstore.Row // which was read; nil if there was none
	granted bool          // its row was inserted
}

// ask reads the row of a key. If there is none, it inserts the entry of c, unless c needs a fence or
// replaces another entry.
func (s *Store) ask(ctx context.Context, key string, c *lock.Claim) (*asked, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	call, err := s.claims.Enter(ctx, &asked{key: key, entry: entry(key, c), inserts: c.Replaces == "" && !c.Fenced})
	if err != nil {
		return nil, failure.NotApplied(err)
	}
	select {
	case <-call.Done():
		return call.Of, call.Err
	case <-ctx.Done():
		return nil, fmt.Errorf("mysqlstore: %w", context.Cause(ctx))
	}
}

// serveClaims executes the claims that wait, on one connection.
func (s *Store) serveClaims(ctx context.Context) {
	_, until := s.claims.Waiting()
	waits, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	var calls []*rowstore.Call[*asked]
	var errs []error
	err := func() (err error) {
		defer send.Recover(&err) // a hook of the driver must not end the process
		return s.withOwn(waits, rowstore.Later, func(conn *sql.Conn) (err error) {
			if calls == nil {
				calls, until = s.takeClaims()
			}
			ctx, cancel := context.WithDeadline(ctx, until)
			defer cancel()
			errs, err = s.claimTogether(ctx, conn, calls)
			return err
		})
	}()
	if calls == nil && err != nil && time.Now().Before(until) {
		calls, _ = s.takeClaims() // there is no connection, and not for the lack of time
	}
	for i, c := range calls {
		if errs != nil {
			err = errs[i]
		}
		c.End(err)
	}
}

// takeClaims takes the claims that wait, each key once.
func (s *Store) takeClaims() (calls []*rowstore.Call[*asked], until time.Time) {
	keys := make(map[string]bool)
	return s.claims.Take(func(a *asked) bool {
		if keys[a.key] || len(keys) == claimsAtOnce {
			return false
		}
		keys[a.key] = true
		return true
	})
}

// claimTogether executes claims. If the server refuses them, or another process is faster for one of
// the keys twice, each is executed alone, and errs has their errors: one must not fail the others.
func (s *Store) claimTogether(ctx context.Context, conn *sql.Conn, calls []*rowstore.Call[*asked]) (errs []error, err error) {
	var all []*asked
	for _, c := range calls {
		all = append(all, c.Of)
	}
	// Other processes insert the same keys in the same order, so that there is no deadlock.
	slices.SortFunc(all, func(a, b *asked) int { return strings.Compare(a.key, b.key) })
	if err = s.claimAll(ctx, conn, all); isDuplicate(err) {
		err = s.claimAll(ctx, conn, all)
	}
	if len(all) < 2 || !refused(err) && !isTooLarge(err) || isDemoted(err) {
		return nil, err
	}
	for _, c := range calls {
		errs = append(errs, failure.Of(s.claimAll(ctx, conn, []*asked{c.Of})))
	}
	return errs, nil
}

// claimAll reads the rows of all keys, and inserts the ones that are missing. A claim alone is
// inserted first, unless the last key was taken: duplicates often come together.
func (s *Store) claimAll(ctx context.Context, conn *sql.Conn, all []*asked) error {
	keys, of := make(list, len(all)), make(map[string]*asked, len(all))
	for i, a := range all {
		keys[i], of[a.key] = []byte(a.key), a
	}
	switch {
	case len(all) == 0: // their callers have left
		return nil
	case len(all) == 1 && all[0].inserts && !s.keyTaken.Load():
		if err := s.insert(ctx, conn, s.statements.insertAbsent, all); err != nil || all[0].granted {
			return err
		}
	}
	taken := false
	err := s.readAll(ctx, conn, keys, func(r *rowstore.Row) {
		if a := of[string(r.Key)]; a != nil {
			a.row, taken = r, true
		}
	})
	if s.keyTaken.Store(taken); err != nil {
		return fmt.Errorf("%w: %w", errUncommitted, err)
	}
	missing := slices.DeleteFunc(slices.Clone(all), func(a *asked) bool { return !a.inserts || a.row != nil })
	return s.insert(ctx, conn, s.statements.insert, missing)
}

// insert inserts all of the rows, or none. If another process was faster for the only one, it returns no
// error.
func (s *Store) insert(ctx context.Context, conn *sql.Conn, statement string, all []*asked) error {
	if len(all) == 0 {
		return nil
	}
	var entries []string
	for _, a := range all {
		entries = append(entries, string(a.entry))
	}
	changed, err := s.execOn(ctx, conn, text(statement, expression(strings.Join(entries, "), (")), all[0].key))
	for _, a := range all {
		a.granted = err == nil && changed > 0
	}
	if len(all) == 1 && isDuplicate(err) {
		return nil
	}
	return err
}
