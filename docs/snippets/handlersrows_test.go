package snippets_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

func handlings() []handling {
	return slices.Concat(endings(), failings(), settings(), lasting(), lifetimes(), answerings(), elsewheres(), libraries())
}

func in(topic string, rows ...handling) []handling {
	for i := range rows {
		rows[i].topic = topic
	}
	return rows
}

// then is an order, and f if there was no error.
func then(f func(c *call) error) func(c *call) error {
	return func(c *call) error {
		if err := c.order(); err != nil {
			return err
		}
		return f(c)
	}
}

func endings() []handling {
	return in("The end of the transaction",
		handling{name: "one `INSERT`", over: overEach, handle: (*call).order},
		handling{name: "no statement", over: overEach, orders: -1, handle: all()},
		handling{name: "`defer tx.Rollback()`", over: overEach, handle: func(c *call) error {
			defer c.rollback() //nolint:errcheck // as tutorials have it
			return c.order()
		}},
		handling{name: "`defer tx.Rollback()`, `return tx.Commit()`", over: overEach, so: "leave out `Commit`", handle: func(c *call) error {
			defer c.rollback() //nolint:errcheck // as tutorials have it
			if err := c.order(); err != nil {
				return err
			}
			return c.commit()
		}},
		handling{name: "`Commit`, its error ignored", over: overEach, handle: func(c *call) error {
			err := c.order()
			_ = c.commit()
			return err
		}},
		handling{name: "`Commit`, and then one more statement", over: overEach, so: "leave out `Commit`", orders: 2, handle: func(c *call) error {
			err := c.order()
			_ = c.commit()
			return errors.Join(err, c.order())
		}},
		handling{name: "`Rollback`, and then `201`", over: overEach, handle: func(c *call) error {
			err := c.order()
			_ = c.rollback()
			return err
		}},
		handling{name: "`pgx.BeginFunc(ctx, tx, f)`", over: overPgx, handle: func(c *call) error {
			return pgx.BeginFunc(c, c.tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(c, "INSERT INTO orders VALUES ($1)", c.run)
				return err
			})
		}},
		handling{name: "`COMMIT`", over: overEach, handle: all("order", "COMMIT")},
		handling{name: "`COMMIT`, and then `500`", helpless: true, so: "leave `COMMIT` to the guard: **the order is there, and with the repeat twice**", handle: func(c *call) error {
			return errors.Join(all("order", "COMMIT")(c), errAway)
		}},
		handling{name: "`COMMIT AND CHAIN`, another order", orders: 2, handle: all("order", "COMMIT AND CHAIN", "order")},
		handling{name: "`COMMIT; BEGIN`", over: overEach, orders: 2, handle: all("order", "COMMIT; BEGIN", "order")},
		handling{name: "`COMMIT` in a `pgx.Batch`", over: overPgx, handle: func(c *call) error {
			b := new(pgx.Batch)
			b.Queue("INSERT INTO orders VALUES ($1)", c.run)
			b.Queue("COMMIT")
			return c.tx.SendBatch(c, b).Close()
		}},
		handling{name: "`ROLLBACK`", over: overEach, handle: all("order", "ROLLBACK")},
		handling{name: "`ROLLBACK`, its error ignored, another order", over: overOthers, orders: 2, handle: ignoring("order", "ROLLBACK", "order")},
		handling{name: "`ROLLBACK` before all else", over: overEach, handle: all("ROLLBACK", "order")},
		handling{name: "`ROLLBACK AND CHAIN`, another order", handle: all("order", "ROLLBACK AND CHAIN", "order")},
		handling{name: "`SELECT 1/0`, `COMMIT`, all ignored", handle: ignoring("order", "SELECT 1/0", "COMMIT")},
		handling{name: "`BEGIN` once more", over: overEach, handle: all("BEGIN", "order")},
		handling{name: "`PREPARE TRANSACTION`", so: "the order is nowhere until an operator ends what was prepared", undo: "ROLLBACK PREPARED 'order'", handle: all("order", "PREPARE TRANSACTION 'order'")},
		handling{name: "`CALL` of a procedure with `COMMIT`", setup: "CREATE PROCEDURE ends() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'", undo: "DROP PROCEDURE ends()", handle: all("order", "CALL ends()")},
		handling{name: "the same, without an error", over: overMySQL, so: "leave out `COMMIT`: what follows it is refused", setup: "CREATE PROCEDURE ends() COMMIT", undo: "DROP PROCEDURE ends", handle: all("order", "CALL ends()")},
		handling{name: "`CALL` of a procedure with `ROLLBACK`", over: overMySQL, setup: "CREATE PROCEDURE ends() ROLLBACK", undo: "DROP PROCEDURE ends", handle: all("order", "CALL ends()")},
		handling{name: "`CREATE TABLE`, its error ignored", over: overOthers, handle: ignoring("order", "CREATE TABLE basket (id int)")},
		handling{name: "`LOCK TABLES`, `START TRANSACTION`, `SET autocommit = 1`, their errors ignored", over: overMySQL, handle: ignoring("order", "LOCK TABLES orders WRITE", "START TRANSACTION", "SET autocommit = 1")},
		handling{name: "`RELEASE SAVEPOINT latch_work`, the store's own", over: overMySQL, handle: all("order", "RELEASE SAVEPOINT latch_work")},
		handling{
			name: "a table without transactions (`ENGINE = MyISAM`), and then `500`", over: overMySQL, helpless: true, so: "`ENGINE = InnoDB`: **the order is there, and with the repeat twice**",
			setup: "ALTER TABLE orders ENGINE = MyISAM", undo: "ALTER TABLE orders ENGINE = InnoDB", handle: func(c *call) error { return errors.Join(c.order(), errAway) },
		},
	)
}

func (c *call) commit() error {
	if c.sqlTx != nil {
		return c.sqlTx.Commit()
	}
	return c.tx.Commit(c)
}

func (c *call) rollback() error {
	if c.sqlTx != nil {
		return c.sqlTx.Rollback()
	}
	return c.tx.Rollback(c)
}

func failings() []handling {
	const taken = "INSERT INTO items VALUES (1)"
	return in("Statements that fail, and savepoints",
		handling{name: "a unique violation, returned", over: overEach, handle: all("order", taken)},
		handling{name: "a unique violation, ignored", over: overEach, handle: ignoring("order", taken)},
		handling{name: "`tx.Begin`, deferred `Rollback` alone", over: overPgx, orders: -1, so: "`Commit` the savepoint", handle: func(c *call) error {
			sp, err := c.tx.Begin(c)
			if err != nil {
				return err
			}
			defer sp.Rollback(c) //nolint:errcheck // as tutorials have it
			_, err = sp.Exec(c, "INSERT INTO orders VALUES ($1)", c.run)
			return err
		}},
		handling{name: "`SAVEPOINT`, left open", over: overEach, handle: all("SAVEPOINT a", "order")},
		handling{name: "`SAVEPOINT`, rolled back", over: overEach, orders: -1, handle: all("SAVEPOINT a", "order", "ROLLBACK TO SAVEPOINT a")},
		handling{name: "`SAVEPOINT`, a unique violation, `ROLLBACK TO`", over: overEach, handle: func(c *call) error {
			return errors.Join(c.exec("SAVEPOINT a"), ignoring(taken)(c), c.exec("ROLLBACK TO a"), c.order())
		}},
		handling{name: "a deadlock, ignored, another statement", over: overMySQL, handle: func(c *call) error {
			_ = c.deadlock()
			_ = c.order()
			return nil
		}},
		handling{name: "a deadlock, the work again in the same transaction", over: overMySQL, so: "answer with an error: the client's retry runs", handle: func(c *call) (err error) {
			for range 3 {
				if err = c.deadlock(); err == nil {
					return c.order()
				}
			}
			return err
		}},
		handling{name: "a statement whose context is over, ignored", over: overEach, handle: func(c *call) error {
			err := c.order()
			// A statement that has not begun by then is never sent, and costs the transaction nothing.
			ctx, cancel := context.WithTimeout(c, 300*time.Millisecond)
			defer cancel()
			if c.sqlTx != nil {
				_, _ = c.sqlTx.ExecContext(ctx, map[string]string{
					overSQL: "SELECT pg_sleep(1)", overMySQL: "DO SLEEP(1)",
					overSQLite: "INSERT INTO notes WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000000) SELECT i, i FROM n",
				}[c.desk.over])
			} else {
				_, _ = c.tx.Exec(ctx, "SELECT pg_sleep(1)")
			}
			return err
		}},
		handling{
			name:  "a deferred constraint that fails at COMMIT",
			setup: "CREATE TABLE parts (item int REFERENCES items DEFERRABLE INITIALLY DEFERRED)", undo: "DROP TABLE parts",
			handle: all("order", "INSERT INTO parts VALUES (7)"),
		},
		handling{name: "`serializable`, and another transaction in its way", handle: func(c *call) error {
			if err := all("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SELECT count(*) FROM items")(c); err != nil {
				return err
			}
			if c.run == 1 {
				if err := c.desk.office.exec(c, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM orders; INSERT INTO items VALUES (2); COMMIT"); err != nil {
					return err
				}
			}
			return c.order()
		}},
	)
}

func settings() []handling {
	set := func(so, statement string) handling {
		return handling{name: "`" + statement + "`", so: so, handle: all("order", statement)}
	}
	const keeps = "`SET LOCAL`: the connection of the pool keeps it"
	return in("Settings",
		set("", "SET LOCAL search_path = pg_catalog"),
		set(keeps, "SET search_path = pg_catalog"),
		handling{name: "`SET LOCAL idle_in_transaction_session_timeout = 20`, and a pause", handle: func(c *call) error {
			err := all("order", "SET LOCAL idle_in_transaction_session_timeout = 20")(c)
			time.Sleep(200 * time.Millisecond)
			return err
		}},
		set("`RESET ROLE` before it answers", "SET LOCAL ROLE pg_monitor"),
		handling{name: "`SET LOCAL ROLE pg_monitor`, `RESET ROLE`", handle: all("order", "SET LOCAL ROLE pg_monitor", "RESET ROLE")},
		set("", "SET LOCAL transaction_read_only = on"),
		set(keeps, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
		handling{name: "`SET TRANSACTION ISOLATION LEVEL SERIALIZABLE` first", handle: all("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "order")},
		set("set back what was set, one by one", "RESET ALL"),
		set("", "DISCARD ALL"),
		set("", "DEALLOCATE ALL"),
	)
}

func lasting() []handling {
	return in("What lasts as long as the session or the transaction",
		handling{name: "`LOCK TABLE latch_entries IN SHARE MODE`", handle: all("LOCK TABLE latch_entries IN SHARE MODE", "order")},
		handling{name: "`tx.CopyFrom`", over: overPgx, orders: 3, handle: func(c *call) error {
			_, err := c.tx.CopyFrom(c, pgx.Identifier{"orders"}, []string{"run"}, pgx.CopyFromRows([][]any{{c.run}, {c.run}, {c.run}}))
			return err
		}},
		handling{name: "`pgx.Batch`, not closed", over: overPgx, handle: func(c *call) error {
			b := new(pgx.Batch)
			b.Queue("INSERT INTO orders VALUES ($1)", c.run)
			b.Queue("SELECT 1")
			_, err := c.tx.SendBatch(c, b).Exec()
			return err
		}},
		handling{name: "`tx.PrepareContext`", over: overSQLs, handle: func(c *call) error {
			stmt, err := c.sqlTx.PrepareContext(c, c.desk.reads(insertRun))
			if err != nil {
				return err
			}
			_, err = stmt.ExecContext(c, c.run)
			return err
		}},
		handling{name: "`tx.StmtContext` of a statement of the `*sql.DB`", over: overSQLs, so: "`tx.PrepareContext`; pgx prepares what is executed again by itself", handle: func(c *call) error {
			stmt, err := c.desk.db.PrepareContext(c, c.desk.reads(insertRun))
			if err != nil {
				return err
			}
			defer stmt.Close()
			_, err = c.sqlTx.StmtContext(c, stmt).ExecContext(c, c.run)
			return err
		}},
		handling{name: "rows left open", over: overSteady, so: "close rows before the handler returns: over MariaDB the order is either committed or rolled back", handle: then(func(c *call) error {
			if c.sqlTx != nil {
				_, err := c.sqlTx.QueryContext(c, c.desk.thousandRows())
				return err
			}
			_, err := c.tx.Query(c, "SELECT generate_series(1, 1000)")
			return err
		})},
		handling{name: "rows of the first statement, left open", over: overPgx, so: "the same", orders: -1, handle: func(c *call) error {
			_, err := c.tx.Query(c, "SELECT generate_series(1, $1)", 1000)
			return err
		}},
		handling{name: "`QueryRow`, not scanned", over: overSteady, so: "scan it: over MariaDB the order is either committed or rolled back", handle: then(func(c *call) error {
			if c.sqlTx != nil {
				_ = c.sqlTx.QueryRowContext(c, "SELECT 1")
				return nil
			}
			_ = c.tx.QueryRow(c, "SELECT 1")
			return nil
		})},
	)
}

func (d *desk) thousandRows() string {
	if d.over == overSQL {
		return "SELECT generate_series(1, 1000)"
	}
	return "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i FROM n"
}

// deadlock has the transaction meet another one of MariaDB, and returns the error of its statement. InnoDB rolls back
// the one that has changed fewer rows.
func (c *call) deadlock() error {
	if err := all("order", "UPDATE items SET id = id WHERE id = 1")(c); err != nil {
		return err
	}
	other, err := c.desk.office.BeginTx(c, nil)
	if err != nil {
		return err
	}
	defer other.Rollback() //nolint:errcheck // nothing of it is to stay
	if _, err := other.ExecContext(c, "INSERT INTO items SELECT seq FROM seq_2_to_20"); err != nil {
		return err
	}
	waited := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(c, "SELECT id FROM items WHERE id = 1 FOR UPDATE")
		waited <- err
	}()
	for n := 0; n == 0; {
		time.Sleep(mariaDBLooks)
		if err := c.desk.db.QueryRowContext(c, "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'").Scan(&n); err != nil {
			return err
		}
	}
	err = c.exec("UPDATE items SET id = id WHERE id = 2")
	return errors.Join(err, <-waited)
}

// begins starts a statement of the transaction in a goroutine, and waits until it is in progress. It ends
// a while later; wait waits for it.
func (c *call) begins() (wait func(), err error) {
	holder, err := c.desk.office.Conn(c)
	if err != nil {
		return nil, err
	}
	if _, err := holder.ExecContext(c, "SELECT pg_advisory_lock(7)"); err != nil {
		return nil, err
	}
	late := *c
	late.Context = context.WithoutCancel(c)
	var done sync.WaitGroup
	done.Go(func() { _ = late.exec("SELECT pg_advisory_xact_lock(7)") })
	for n := 0; n == 0; {
		if err := c.desk.office.QueryRowContext(c, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&n); err != nil {
			return nil, err
		}
	}
	done.Go(func() {
		time.Sleep(100 * time.Millisecond) // on the clock of the server
		_, _ = holder.ExecContext(late, "SELECT pg_advisory_unlock(7)")
		_ = holder.Close()
	})
	return done.Wait, nil
}

func lifetimes() []handling {
	return in("Goroutines, and use after the handler has returned",
		handling{name: "a goroutine that has a statement in progress when the handler returns", so: "wait for the goroutines before the answer", handle: then(func(c *call) error {
			wait, err := c.begins()
			c.desk.later = func() error { wait(); return nil }
			return err
		})},
		handling{name: "a goroutine and the handler at once", so: "one at a time", handle: func(c *call) error {
			wait, err := c.begins()
			if err != nil {
				return err
			}
			defer wait()
			return c.order()
		}},
		handling{name: "the transaction, kept and used after the answer", over: overEach, handle: func(c *call) error {
			c.desk.later = func() error {
				ctx := context.Background()
				late := *c
				late.Context = ctx
				if late.order() == nil {
					return errors.New("it was executed")
				}
				return nil
			}
			return c.order()
		}},
		handling{name: "`context.Background()` for the statements", over: overEach, handle: func(c *call) error {
			c.Context = context.Background()
			return c.order()
		}},
		handling{name: "the client goes away, and the handler goes on", over: overEach, handle: func(c *call) error {
			err := c.order()
			if c.run == 1 {
				c.desk.leave()
				time.Sleep(50 * time.Millisecond)
			}
			return errors.Join(err, c.order())
		}, orders: 2},
	)
}

func answerings() []handling {
	return in("Answers",
		handling{name: "`500`", over: overEach, handle: then(func(*call) error { return errAway })},
		handling{name: "`400` after the `INSERT`", over: overEach, so: "check first, or keep only successes ([`WithFinal`](exactly-once.md#what-happens-when))", handle: then(func(c *call) error { return c.answer(http.StatusBadRequest, "no such sku") })},
		handling{name: "nothing at all, which is `200`", handle: then(func(c *call) error { c.answered = true; return nil })},
		handling{name: "`Flush`", handle: then(func(c *call) error {
			_ = c.answer(http.StatusCreated, "part ")
			_ = http.NewResponseController(c.w).Flush()
			_, err := io.WriteString(c.w, "part")
			return err
		})},
		handling{name: "2 MB", over: overEach, handle: then(func(c *call) error {
			_ = c.answer(http.StatusCreated, strings.Repeat("x", 2<<20))
			return nil
		})},
		handling{name: "`Hijack`", handle: then(func(c *call) error {
			_, _, err := http.NewResponseController(c.w).Hijack()
			return err
		})},
		handling{name: "`panic`", over: overEach, handle: then(func(*call) error { panic(errAway) })},
		handling{name: "`runtime.Goexit`", over: overEach, handle: then(func(*call) error { runtime.Goexit(); return nil })},
		handling{name: "`lock.Commit`, and then `500`", over: overEach, handle: then(func(c *call) error { return errors.Join(lock.Commit(c), errAway) })},
		handling{name: "`lock.Commit`, and then `201`", over: overEach, handle: then(func(c *call) error { return lock.Commit(c) })},
	)
}

func elsewheres() []handling {
	second := func(c *call) error {
		late := *c
		ctx, cancel := context.WithTimeout(c, 200*time.Millisecond)
		defer cancel()
		late.Context = ctx
		return errors.Join(c.order(), late.beside())
	}
	return in("Other connections and transactions",
		handling{name: "a row over the pool, and `201`", over: overServers, handle: func(c *call) error {
			return errors.Join(c.order(), c.beside())
		}},
		handling{name: "a row over the pool, and `500`", over: overServers, so: besideTwice, handle: func(c *call) error {
			return errors.Join(c.order(), c.beside(), errAway)
		}},
		handling{name: "a second connection of a pool of one, for at most 0.2 s", pool: 1, so: "without a bound, it waits for ever", handle: second},
		handling{name: "a second connection while the transaction has written, for at most 0.2 s", over: overSQLite, so: "without a bound, it waits for as long as the pool says", handle: second},
		handling{name: "sessions of the pool that the server has ended since their last use", over: overMySQL, before: func(t *testing.T, d *desk) {
			t.Helper()
			var id int
			require.NoError(t, d.db.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id))
			require.NoError(t, d.office.exec(t.Context(), "KILL "+strconv.Itoa(id)))
		}, handle: (*call).order},
		handling{name: "the session is ended by an operator when the handler returns", over: overMySQL, handle: func(c *call) error {
			var id int
			if err := errors.Join(c.order(), c.sqlTx.QueryRowContext(c, "SELECT CONNECTION_ID()").Scan(&id)); err != nil {
				return err
			}
			return c.desk.office.exec(c, "KILL "+strconv.Itoa(id))
		}},
		handling{name: "`locker.Do` with another key inside", over: overEach, handle: func(c *call) error {
			return c.desk.locker.Do(c, lock.Key("stock", "tea"), func(context.Context) error { return c.order() })
		}},
		handling{name: "the session is ended by an operator when the handler returns", handle: then(func(c *call) error {
			return c.desk.office.exec(c, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'")
		})},
	)
}

const besideTwice = "write through the transaction of the guard: **the row beside it is there, and with the repeat twice**"
