package snippets_test

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// handling is a row of docs/evidence/handlers.md: a handler whose order is a row of a database.
type handling struct {
	topic, name string
	over        string // the drivers that it is written for, if not both of PostgreSQL
	so          string // what the reader does about it
	orders      int    // that each run is to leave, if not one: none, if it is negative
	pool        int    // how many connections it has, if not ten
	setup, undo string // statements before the handler's first run, and after its last one
	before      func(t *testing.T, d *desk)
	helpless    bool // the rule is broken where no guard can keep it
	handle      func(c *call) error
}

const (
	overPgx    = "pgx"
	overSQL    = "`database/sql`"
	overMySQL  = "MariaDB"
	overSQLite = "SQLite"
)

// Several drivers.
const (
	overBoth    = ""
	overServers = "servers"
	overSQLs    = "database/sql of each"
	overEach    = "each"
	overOthers  = "others than PostgreSQL"
	overSteady  = "each but MariaDB" // whose connection ends or is used again, by chance
)

var drivers = map[string][]string{
	overBoth:    {overPgx, overSQL},
	overServers: {overPgx, overSQL, overMySQL},
	overSQLs:    {overSQL, overMySQL, overSQLite},
	overEach:    {overPgx, overSQL, overMySQL, overSQLite},
	overOthers:  {overMySQL, overSQLite},
	overSteady:  {overPgx, overSQL, overSQLite},
}

func (h *handling) drivers() []string {
	if several, ok := drivers[h.over]; ok {
		return several
	}
	return []string{h.over}
}

// call is one run of a handler. An error that the handler returns is answered with 500, and nothing with 201.
type call struct {
	context.Context //nolint:containedctx // of the run

	w    http.ResponseWriter
	r    *http.Request
	run  int
	desk *desk

	tx    pgx.Tx  // over pgx
	sqlTx *sql.Tx // over all others

	answered bool
}

func (c *call) exec(statement string, args ...any) (err error) {
	if c.sqlTx != nil {
		_, err = c.sqlTx.ExecContext(c, c.desk.reads(statement), args...)
	} else {
		_, err = c.tx.Exec(c, statement, args...)
	}
	return err
}

func (c *call) order() error { return c.exec(insertRun, c.run) }

func (c *call) beside() (err error) {
	if c.sqlTx != nil {
		_, err = c.desk.db.ExecContext(c, c.desk.reads("INSERT INTO orders (run, beside) VALUES ($1, true)"), c.run)
	} else {
		_, err = c.desk.pool.Exec(c, "INSERT INTO orders (run, beside) VALUES ($1, true)", c.run)
	}
	return err
}

func (c *call) answer(status int, text string) error {
	c.answered = true
	c.w.WriteHeader(status)
	_, err := io.WriteString(c.w, text)
	return err
}

// all executes statements one after the other, "order" being the order's.
func all(statements ...string) func(c *call) error {
	return func(c *call) error {
		for _, s := range statements {
			if err := c.one(s); err != nil {
				return err
			}
		}
		return nil
	}
}

// ignoring is all, by a handler that does not look at errors.
func ignoring(statements ...string) func(c *call) error {
	return func(c *call) error {
		for _, s := range statements {
			_ = c.one(s)
		}
		return nil
	}
}

func (c *call) one(statement string) error {
	if statement == "order" {
		return c.order()
	}
	return c.exec(statement)
}

// desk serves the handler of a row, with its own connections to the database.
type desk struct {
	over   string
	office office // is not of the service
	pool   *pgxpool.Pool
	db     *sql.DB
	locker *lock.Locker
	server *httptest.Server
	log    bytes.Buffer
	runs   int
	done   chan struct{} // has an element for each request that has ended
	leave  func()        // has the client of the request go away
	later  func() error  // is called when the request has ended
}

// openDesk opens it. twin replaces the store's part of the guard, unless it is nil.
func openDesk(t *testing.T, at databases, h *handling, over string, twin func(guarded) lock.Store) *desk {
	t.Helper()
	d := &desk{over: over, done: make(chan struct{}, 1)}
	store := d.open(t, at, h)
	if h.before != nil {
		h.before(t, d)
	}
	var guarding lock.Store = store
	if twin != nil {
		guarding = twin(store)
	}
	d.locker = lock.New(guarding, lock.WithTransaction(), lock.WithBudget(5*time.Second), lock.WithLogger(slog.New(slog.NewTextHandler(&d.log, nil))))
	guard := latch.Idempotent(d.locker, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)(d.handler(h))
	d.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { d.done <- struct{}{} }()
		guard.ServeHTTP(w, r)
	}))
	d.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of panics
	d.server.Start()
	d.server.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() {
		d.server.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		require.NoError(t, d.locker.Close(ctx))
		store.Close()
		if d.db != nil {
			require.NoError(t, d.db.Close())
		} else {
			d.pool.Close()
		}
		require.NoError(t, d.office.exec(ctx, h.undo))
		require.NoError(t, d.office.Close())
	})
	return d
}

func (d *desk) handler(h *handling) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.runs++
		c := &call{Context: r.Context(), w: w, r: r, run: d.runs, desk: d}
		c.tx, _ = pgstore.Tx(c)
		c.sqlTx = sqlTx(c)
		switch err := h.handle(c); {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case !c.answered:
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, "order %d", c.run)
		}
	})
}

// post sends the request, always with the same key, and waits until its handler has ended. It
// returns nil if there was no answer.
func (d *desk) post(t *testing.T) *sight {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
	defer leave()
	d.leave = leave
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.server.URL, strings.NewReader(`{"sku":"tea"}`))
	require.NoError(t, err)
	r.Header.Set("X-User-ID", "42")
	r.Header.Set("Idempotency-Key", "8e03978e")
	r.Close = true // the client repeats nothing by itself
	var answer *sight
	res, err := d.server.Client().Do(r)
	if err == nil {
		var body []byte
		body, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
		answer = &sight{status: res.StatusCode, header: res.Header, text: string(body)}
	}
	<-d.done
	if err != nil {
		return nil
	}
	return answer
}

// came holds the answers to a request with a key and to its repeat, and the orders after each.
type came struct {
	answers []*sight
	runs    []int         // after each request
	rows    []map[int]int // by run, after each
	beside  []int         // rows that were not inserted in the transaction, after each
	open    int           // sessions that are in a transaction at the end
	logged  string
	later   error
}

func (d *desk) play(t *testing.T) *came {
	t.Helper()
	s := new(came)
	for range 2 {
		s.answers = append(s.answers, d.post(t))
		if d.later != nil {
			s.later = d.later()
			d.later = nil
		}
		s.runs = append(s.runs, d.runs)
		byRun, beside, err := d.office.orders(t.Context())
		require.NoError(t, err)
		s.rows, s.beside = append(s.rows, byRun), append(s.beside, beside)
	}
	require.Eventually(t, func() bool {
		var err error
		s.open, err = d.office.open(t.Context())
		return err == nil && s.open == 0
	}, 30*time.Second, 10*time.Millisecond, "sessions are at work still")
	s.logged = d.log.String()
	return s
}

// broken says how the rule of the page is broken, "" if it is kept.
func (s *came) broken(want int) string {
	first, again := s.answers[0], s.answers[1]
	before, after := s.rows[0], s.rows[1]
	kept := again != nil && again.replayed()
	switch {
	case first.ok() && before[1] != want:
		return "a success without its rows"
	case first != nil && !first.ok() && !kept && before[1] > 0:
		return "rows without their answer"
	case after[1] != before[1]:
		return "rows after the answer"
	case kept && s.runs[1] > 1:
		return "a replay that has run"
	case kept && first != nil && (first.status != again.status || first.text != again.text):
		return "a replay of another answer"
	case !kept && again.ok() && after[2] != want:
		return "a second success without its rows"
	case after[1] > 0 && after[2] > 0:
		return "rows of two runs"
	case s.open > 0:
		return "a session is left in a transaction"
	}
	return ""
}

func (s *sight) ok() bool { return s != nil && s.status < 300 }

func (s *came) cells() []string {
	count := func(i int) string {
		n := 0
		for _, rows := range s.rows[i] {
			n += rows
		}
		if s.beside[i] > 0 {
			return fmt.Sprintf("%d, and %d beside", n, s.beside[i])
		}
		return fmt.Sprint(n)
	}
	var again string
	switch {
	case s.answers[1] != nil && s.answers[1].replayed():
		again = "replayed"
		if s.answers[0] == nil {
			again = fmt.Sprintf("`%d`, replayed", s.answers[1].status)
		}
	case s.runs[1] > s.runs[0]:
		again = "runs: " + gotOrNot(s.answers[1])
	default:
		again = gotOrNot(s.answers[1])
	}
	return []string{gotOrNot(s.answers[0]), count(0), again, count(1), s.reason()}
}

func gotOrNot(s *sight) string {
	if s == nil {
		return "no answer"
	}
	return got(*s)
}

// reason is the cause in the log, without what to do about it.
func (s *came) reason() string {
	for line := range strings.Lines(s.logged) {
		_, quoted, ok := strings.Cut(line, " error=")
		if !ok {
			continue
		}
		text, _ := strconv.QuotedPrefix(quoted)
		text, _ = strconv.Unquote(text)
		for _, before := range []string{"transaction was rolled back: ", "all was rolled back: pgstore: ", "the question for its outcome: mysqlstore: ", "middleware: "} {
			if _, why, ok := strings.Cut(text, before); ok {
				text = why
			}
		}
		text, _, _ = strings.Cut(text, "\n")
		text, _, _ = strings.Cut(text, " (SQLSTATE")
		if !strings.Contains(text, "ERROR: ") && !strings.Contains(text, "FATAL: ") {
			text, _, _ = strings.Cut(text, ": ")
		}
		return text
	}
	if strings.Contains(s.logged, "a handler returned without an answer") {
		return "a handler returned without an answer"
	}
	return "–"
}

const handlersPage = "Written by `GOWORK=$PWD/all.work go test ./docs/snippets -run TestHandlers -update`, which also executes every row:" + `

# Handlers: what each leaves

A handler inserts an order, does what the row says, and answers ` + "`201`" + ` if the row names no answer. The rules are in [handlers](../handlers.md).

- *pgx*: ` + "`pgstore.New`" + ` with ` + "`pgstore.Tx`" + `; *` + "`database/sql`" + `*: ` + "`pgstore.NewSQL`" + ` with ` + "`pgstore.SQLTx`" + `; *both*: these two, over PostgreSQL; *MariaDB*: ` + "`mysqlstore.New`" + `
  with ` + "`mysqlstore.Tx`" + `; *SQLite*: ` + "`sqlitestore.Open`" + ` with ` + "`sqlitestore.Tx`" + `, for GORM with its dialect for tests.
- *returned*: an error of the handler is answered with ` + "`500`" + `. *ignored*: it is not looked at.
- The repeat is the same request, once the first has ended. *replayed*: the first answer again. *runs*: a second run of the handler.
- *orders*: the rows that are committed after each of the two requests. *beside*: rows that were written over another connection.
- *logged*: the cause in the log of the guard.
- **Bold**: the handler breaks the rule in a way that no guard can see or undo.
`

func (h *handling) lines(t *testing.T, at databases) string {
	t.Helper()
	var over [][]string
	var rows [][]string
	for _, driver := range h.drivers() {
		t.Run(driver, func(t *testing.T) {
			s := openDesk(t, at, h, driver, nil).play(t)
			broken := s.broken(max(0, cmp.Or(h.orders, 1)))
			if h.helpless {
				require.NotEmpty(t, broken, "a guard can help")
			} else {
				require.Empty(t, broken, "%v %v\n%s", s.cells(), s.rows, s.logged)
			}
			require.NoError(t, s.later)
			cells := s.cells()
			same := slices.IndexFunc(rows, func(other []string) bool { return slices.Equal(other, cells) })
			if same < 0 {
				over, rows = append(over, nil), append(rows, cells)
				same = len(rows) - 1
			}
			over[same] = append(over[same], driver)
		})
	}
	var b strings.Builder
	for i, cells := range rows {
		names := strings.Replace(strings.Join(over[i], ", "), overPgx+", "+overSQL, "both", 1)
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", h.name, names, strings.Join(cells, " | "), cmp.Or(h.so, "–"))
	}
	return b.String()
}

// TestHandlers executes the rows, and compares the page with the results.
func TestHandlers(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "executes a table of handlers over a database")
	t.Parallel()
	at := handlersDatabases(t)
	var b strings.Builder
	b.WriteString(handlersPage)
	topic := ""
	for _, h := range handlings() {
		if h.topic != topic {
			topic = h.topic
			fmt.Fprintf(&b, "\n## %s\n\n| handler | over | the first gets | orders | its repeat gets | orders | logged | so |\n|---|---|---|---|---|---|---|---|\n", topic)
		}
		t.Run(h.name, func(t *testing.T) { b.WriteString(h.lines(t, at)) }) //nolint:paralleltest // the rows are in order
	}
	requirePage(t, "handlers.md", b.String())
}

// settledBadly is a store whose transactions end as settle does, with an error of a guard that has lost
// count of what is committed where. elsewhere leaves the receipt over another connection.
type settledBadly struct {
	guarded
	settle settling
}

type settling = func(work context.Context, tx lock.Transaction, elsewhere func() (bool, error)) (bool, error)

type badly struct {
	lock.Transaction
	settle func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error)
}

func (b badly) Settle(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
	return b.settle(ctx, receipt, keep)
}

func (s settledBadly) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	work, tx, err := s.guarded.Begin(ctx, key, token)
	return work, badly{tx, func(ctx context.Context, receipt []byte, keep time.Duration) (bool, error) {
		return s.settle(work, tx, func() (bool, error) { return s.Settle(ctx, key, lock.Claim{Token: token}, receipt, keep) })
	}}, err
}

// commitAlone commits the work without a receipt, over PostgreSQL.
func commitAlone(work context.Context, tx lock.Transaction) {
	if tx, ok := pgstore.SQLTx(work); ok {
		_, _ = tx.ExecContext(work, "COMMIT")
	} else if tx, ok := pgstore.Tx(work); ok {
		_, _ = tx.Exec(work, "COMMIT")
	}
	_ = tx.Rollback(work)
}

func handlingOf(name string) handling {
	all := handlings()
	return all[slices.IndexFunc(all, func(h handling) bool { return h.name == name })]
}

// TestHandlersCatch plays rows with stores that break the rule, each in another way.
func TestHandlersCatch(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "executes a table of handlers over a database")
	t.Parallel()
	at := handlersDatabases(t)
	for _, tt := range []struct {
		store  string
		over   string
		settle settling
		row    string
		broken string
	}{
		{"the receipt is written over another connection, and the work rolled back", overEach, func(work context.Context, tx lock.Transaction, elsewhere func() (bool, error)) (bool, error) {
			defer func() { _ = tx.Rollback(work) }()
			return elsewhere()
		}, "one `INSERT`", "a success without its rows"},
		{"the receipt is written over another connection, after COMMIT", overBoth, func(work context.Context, tx lock.Transaction, elsewhere func() (bool, error)) (bool, error) {
			commitAlone(work, tx)
			return elsewhere()
		}, "a unique violation, ignored", "a success without its rows"},
		{"COMMIT is called a failure", overBoth, func(work context.Context, tx lock.Transaction, _ func() (bool, error)) (bool, error) {
			commitAlone(work, tx)
			return false, fmt.Errorf("%w: lost", lock.ErrNotApplied)
		}, "one `INSERT`", "rows without their answer"},
	} {
		for _, over := range drivers[tt.over] {
			t.Run(tt.store+"/"+over, func(t *testing.T) { //nolint:paralleltest // they are of one database
				h := handlingOf(tt.row)
				s := openDesk(t, at, &h, over, func(s guarded) lock.Store { return settledBadly{s, tt.settle} }).play(t)
				require.Equal(t, tt.broken, s.broken(1), "%v", s.cells())
			})
		}
	}
}

var errAway = errors.New("the warehouse is away")
