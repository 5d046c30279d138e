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
		store = &watched{Store: own, server: s, transactor: naive{own, twins[twin]}}
	}
	s.locker = lock.New(store, lock.WithTransaction(), lock.WithLease(lease), lock.WithBudget(budget),
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
	tx, ok := txOf(ctx)
	if !ok {
		return errors.New("no transaction")
	}
	if err := s.strike(ctx, r, tx, atWork); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", r.Name, r.Answer); err != nil {
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
		time.Sleep(lease + lease/4)
	case doInterrupt: // and the work goes on as if it had not been
		strikes()
		brief, cancel := context.WithTimeout(ctx, 3*time.Millisecond)
		defer cancel()
		_, _ = tx.ExecContext(brief, "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT 'never', '' FROM n")
	case doFill:
		strikes()
		_, _ = tx.ExecContext(ctx, "PRAGMA max_page_count = 1") // as many as there are
		_, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ('never', zeroblob(1000000))")
		_, _ = tx.ExecContext(ctx, "PRAGMA max_page_count = 4294967294")
		if at == atWork {
			return err
		}
	case doFail:
		strikes()
		return errFailed
	}
	return nil
}

// handle executes statements of the work in its transaction.
type handle interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
}

// txOf returns the transaction of the work.
func txOf(ctx context.Context) (handle, bool) {
	if conn, is := ctx.Value(naiveKey{}).(*sql.Conn); is {
		return conn, true
	}
	return sqlitestore.Tx(ctx)
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
