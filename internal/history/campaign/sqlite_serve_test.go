//go:build unix

package campaign_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/once"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// The variables by which a campaign starts this program as a process of the shop.
const (
	fileVariable = "LATCH_CAMPAIGN_FILE"
	twinVariable = "LATCH_CAMPAIGN_TWIN"
)

// server is a process of the shop.
type server struct {
	locker     *lock.Locker
	noRenewals atomic.Int32 // orders for whose sake renewals are lost
}

// serve answers requests, each on its own goroutine, until the process is killed.
func serve(path, twin string) error {
	own, err := sqlitestore.Open(context.Background(), path)
	if err != nil {
		return err
	}
	s := new(server)
	var store lock.Store = &watched{Store: own, server: s, transactor: own}
	if twin != "" {
		store = &watched{Store: own, server: s, transactor: naive{own, beginOn(own.DB()), sqliteTwins[twin]}}
	}
	s.locker = lock.New(store, lock.WithTransaction(), lock.WithLease(fileLease), lock.WithBudget(fileBudget),
		lock.WithLogger(slog.New(slog.DiscardHandler)), lock.WithKeep(time.Hour))
	var out sync.Mutex
	for lines := bufio.NewReader(os.Stdin); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		q := new(request)
		if err := json.Unmarshal(line, q); err != nil {
			return err
		}
		go func() {
			text, err := json.Marshal(s.answer(q))
			if err != nil {
				text = []byte(err.Error())
			}
			out.Lock()
			defer out.Unlock()
			_, _ = os.Stdout.Write(append(text, '\n'))
		}()
	}
}

// running is an order in its process.
type running struct {
	*request

	leave context.CancelFunc // takes the client away

	mu     sync.Mutex
	paths  []string
	struck bool
	over   bool // there are no more faults
}

func (r *running) takes(path string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paths = append(r.paths, path)
}

// reaches has the fault strike that is for this step.
func (r *running) reaches(at step) {
	if r.Fault.At != at {
		return
	}
	strike := func(do func()) {
		time.Sleep(r.Fault.After)
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.over { // a process that stops after its reply would not be woken
			r.struck = true
			do()
		}
	}
	if at == atClaim || at == atSettle { // while it goes on
		meanwhile := strike
		strike = func(do func()) { go meanwhile(do) }
	}
	switch r.Fault.Do {
	case doKill:
		strike(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	case doStop:
		strike(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) })
	case doLeave:
		strike(r.leave)
	}
}

type runningKey struct{}

func (s *server) answer(q *request) *reply {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run := &running{request: q, leave: cancel}
	r := &reply{ID: q.ID}
	var err error
	r.Receipt, r.Replayed, err = s.locker.Once(context.WithValue(ctx, runningKey{}, run), q.Name, nil, func(ctx context.Context) ([]byte, error) {
		r.Ran = true
		return q.Answer, s.work(ctx, run)
	})
	if err != nil {
		r.Error, r.NotApplied, r.Abandoned = err.Error(), errors.Is(err, lock.ErrNotApplied), errors.Is(err, lock.ErrAbandoned)
	} else {
		run.reaches(atAnswer)
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	run.over, r.Struck, r.Paths = true, run.struck, run.paths
	return r
}

var errFailed = errors.New("the work failed")

// work inserts the order.
func (s *server) work(ctx context.Context, r *running) error {
	tx, ok := fileTx(ctx)
	if !ok {
		return errors.New("no transaction")
	}
	if err := s.strike(ctx, r, tx, atWork); err != nil {
		return err
	}
	if _, err := tx.exec(ctx, "INSERT INTO orders VALUES (?, ?)", r.Name, r.Answer); err != nil {
		return err
	}
	return s.strike(ctx, r, tx, atRow)
}

// strike has the faults strike that are the work's own.
func (s *server) strike(ctx context.Context, r *running, tx handle, at step) error {
	r.reaches(at)
	if r.Fault.At != at {
		return nil
	}
	strikes := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.struck = true
	}
	switch r.Fault.Do {
	case doOutlast:
		strikes()
		s.noRenewals.Add(1)
		defer s.noRenewals.Add(-1)
		time.Sleep(fileLease + fileLease/4)
	case doInterrupt: // and the work goes on as if it had not been
		strikes()
		brief, cancel := context.WithTimeout(ctx, 3*time.Millisecond)
		defer cancel()
		_, _ = tx.exec(brief, "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT 'never', '' FROM n")
	case doFill:
		strikes()
		_, _ = tx.exec(ctx, "PRAGMA max_page_count = 1") // as many as there are
		_, err := tx.exec(ctx, "INSERT INTO orders VALUES ('never', zeroblob(1000000))")
		_, _ = tx.exec(ctx, "PRAGMA max_page_count = 4294967294")
		if at == atWork {
			return err
		}
	case doFail:
		strikes()
		return errFailed
	}
	return nil
}

// fileTx returns the transaction of the work.
func fileTx(ctx context.Context) (handle, bool) {
	if tx, is := ctx.Value(naiveKey{}).(handle); is {
		return tx, true
	}
	tx, ok := sqlitestore.Tx(ctx)
	return handleOfSQL(tx), ok
}

// watched loses renewals, counts the paths of transactions, and has faults strike.
type watched struct {
	*sqlitestore.Store

	server     *server
	transactor lock.Transactor
}

var errLost = errors.New("the renewal is lost")

func (s *watched) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	if r, is := ctx.Value(runningKey{}).(*running); is {
		r.reaches(atClaim)
	}
	return s.Store.Claim(ctx, key, c)
}

func (s *watched) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	if s.server.noRenewals.Load() > 0 {
		return false, errors.Join(lock.ErrNotApplied, errLost)
	}
	return s.Store.Renew(ctx, key, c)
}

func (s *watched) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	work, tx, err := s.transactor.Begin(ctx, key, token)
	if err != nil {
		return nil, nil, err
	}
	r, _ := ctx.Value(runningKey{}).(*running)
	return work, watchedTx{once.Watched{Transaction: tx, Takes: r.takes}, r}, nil
}

type watchedTx struct {
	once.Watched

	r *running
}

func (t watchedTx) Settle(ctx context.Context, receipt []byte, keep time.Duration) (ok bool, err error) {
	t.r.reaches(atSettle)
	return t.Watched.Settle(ctx, receipt, keep)
}

// sqliteTwins are transactions that settle in a wrong way.
var sqliteTwins = map[string]func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error){
	"settles apart":    settlesApart,
	"trusts its lease": leaves(0, leavesInFile),
	"does not ask whether its transaction is open": func(ctx context.Context, t *naiveTx, receipt []byte, keep time.Duration) (bool, error) {
		e, err := t.s.Get(ctx, t.key)
		if err != nil || e.Token != t.token {
			return false, errors.Join(lock.ErrNotApplied, err)
		}
		statement, args := leavesInFile(t, receipt, keep)
		if _, err := t.exec(ctx, statement, args...); err != nil {
			return false, errors.Join(lock.ErrNotApplied, err)
		}
		_ = t.commit(ctx) // it may be committed
		return true, t.rollback(ctx)
	},
}

// leavesInFile leaves the receipt in the database.
func leavesInFile(t *naiveTx, receipt []byte, keep time.Duration) (statement string, args []any) {
	ends := time.Now().Add(keep).UnixMicro()
	return "INSERT OR REPLACE INTO latch_entries VALUES (?1, ?2, 1, NULL, NULL, 0, 1, ?3, ?4, ?4)", []any{[]byte(t.key), []byte(t.token), receipt, ends}
}

// beginOn begins the transactions of a twin, each on its own connection, which COMMIT and ROLLBACK give back.
func beginOn(db *sql.DB) func(context.Context) (handle, error) {
	return func(ctx context.Context) (handle, error) {
		conn, err := db.Conn(ctx)
		if err != nil {
			return handle{}, err
		}
		exec := func(ctx context.Context, statement string, args ...any) (int64, error) {
			return changed(conn.ExecContext(ctx, statement, args...))
		}
		end := func(ctx context.Context, statement string) error {
			_, err := exec(context.WithoutCancel(ctx), statement)
			return err
		}
		back := func(ctx context.Context) {
			_ = end(ctx, "ROLLBACK") // it may be over
			_ = conn.Close()
		}
		if err := end(ctx, "BEGIN IMMEDIATE"); err != nil {
			back(ctx)
			return handle{}, err
		}
		commit := func(ctx context.Context) error {
			defer back(ctx)
			return end(ctx, "COMMIT")
		}
		return handle{exec, commit, func(ctx context.Context) error { back(ctx); return nil }}, nil
	}
}
