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
	"github.com/httplatch/httplatch/lock/pgstore"
)

func handlings() []handling {
	return slices.Concat(endings(), failings(), settings(), lasting(), lifetimes(), answerings(), elsewheres(), libraries())
}

// in gives rows their topic.
func in(topic string, rows ...handling) []handling {
	for i := range rows {
		rows[i].topic = topic
	}
	return rows
}

func endings() []handling {
	return in("The end of the transaction",
		handling{name: "one `INSERT`", over: overEach, handle: (*call).order},
		handling{name: "no statement", over: overEach, orders: -1, handle: all()},
		handling{name: "`defer tx.Rollback(ctx)`", over: overPgx, handle: func(c *call) error {
			defer c.tx.Rollback(c) //nolint:errcheck // as tutorials have it
			return c.order()
		}},
		handling{name: "`defer tx.Rollback()`", over: overSQLs, handle: func(c *call) error {
			defer c.sqlTx.Rollback() //nolint:errcheck // as tutorials have it
			return c.order()
		}},
		handling{name: "`defer tx.Rollback(ctx)`, `return tx.Commit(ctx)`", over: overPgx, so: "leave out `Commit`", handle: func(c *call) error {
			defer c.tx.Rollback(c) //nolint:errcheck // as tutorials have it
			if err := c.order(); err != nil {
				return err
			}
			return c.tx.Commit(c)
		}},
		handling{name: "`defer tx.Rollback()`, `return tx.Commit()`", over: overSQLs, so: "leave out `Commit`", handle: func(c *call) error {
			defer c.sqlTx.Rollback() //nolint:errcheck // as tutorials have it
			if err := c.order(); err != nil {
				return err
			}
			return c.sqlTx.Commit()
		}},
		handling{name: "`Commit`, its error ignored", over: overEach, handle: func(c *call) error {
			err := c.order()
			if c.sqlTx != nil {
				_ = c.sqlTx.Commit()
			} else {
				_ = c.tx.Commit(c)
			}
			return err
		}},
		handling{name: "`Commit`, and then one more statement", over: overEach, so: "leave out `Commit`", orders: 2, handle: func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			if c.sqlTx != nil {
				_ = c.sqlTx.Commit()
			} else {
				_ = c.tx.Commit(c)
			}
			return c.order()
		}},
		handling{name: "`Rollback`, and then `201`", over: overEach, handle: func(c *call) error {
			err := c.order()
			if c.sqlTx != nil {
				_ = c.sqlTx.Rollback()
			} else {
				_ = c.tx.Rollback(c)
			}
			return err
		}},
		handling{name: "`pgx.BeginFunc(ctx, tx, f)`", over: overPgx, handle: func(c *call) error {
			return pgx.BeginFunc(c, c.tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(c, "INSERT INTO orders VALUES ($1)", c.run)
				return err
			})
		}},
		handling{name: "`COMMIT`", over: overEach, handle: all("order", "COMMIT")},
		handling{name: "`COMMIT`, its error ignored", over: overOthers, handle: ignoring("order", "COMMIT")},
		handling{name: "`END`", handle: all("order", "END")},
		handling{name: "`COMMIT`, and then `500`", helpless: true, so: "leave `COMMIT` to the guard: **the order is there, and with the repeat twice**", handle: func(c *call) error {
			return errors.Join(all("order", "COMMIT")(c), errAway)
		}},
		handling{name: "`COMMIT AND CHAIN`", handle: all("order", "COMMIT AND CHAIN")},
		handling{name: "`COMMIT AND CHAIN`, another order", orders: 2, handle: all("order", "COMMIT AND CHAIN", "order")},
		handling{name: "`COMMIT; BEGIN`", over: overEach, orders: 2, handle: all("order", "COMMIT; BEGIN", "order")},
		handling{name: "`COMMIT`, and then `INSERT`", orders: 2, handle: all("order", "COMMIT", "order")},
		handling{name: "`INSERT ...; COMMIT; SELECT 1` in one", handle: all("INSERT INTO orders SELECT count(*) + 1 FROM notes; COMMIT; SELECT 1")},
		handling{name: "`Query(\"COMMIT\")`", handle: func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			if c.sqlTx != nil {
				rows, err := c.sqlTx.QueryContext(c, "COMMIT")
				if err != nil {
					return err
				}
				return rows.Close()
			}
			rows, err := c.tx.Query(c, "COMMIT")
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		}},
		handling{name: "`tx.Conn().Exec(ctx, \"COMMIT\")`", over: overPgx, handle: func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			_, err := c.tx.Conn().Exec(c, "COMMIT")
			return err
		}},
		handling{name: "`COMMIT` in a `pgx.Batch`", over: overPgx, handle: func(c *call) error {
			b := new(pgx.Batch)
			b.Queue("INSERT INTO orders VALUES ($1)", c.run)
			b.Queue("COMMIT")
			return c.tx.SendBatch(c, b).Close()
		}},
		handling{name: "`COMMIT` of a prepared statement", over: overSQLs, handle: func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			stmt, err := c.sqlTx.PrepareContext(c, "COMMIT")
			if err != nil {
				return err
			}
			_, err = stmt.ExecContext(c)
			return err
		}},
		handling{name: "`ROLLBACK`", over: overEach, handle: all("order", "ROLLBACK")},
		handling{name: "`ROLLBACK`, its error ignored, another order", over: overOthers, orders: 2, handle: ignoring("order", "ROLLBACK", "order")},
		handling{name: "`ABORT`", handle: all("order", "ABORT")},
		handling{name: "`ROLLBACK` before all else", over: overEach, handle: all("ROLLBACK", "order")},
		handling{name: "`ROLLBACK`, and then `500`", over: overEach, handle: func(c *call) error {
			return errors.Join(all("order", "ROLLBACK")(c), errAway)
		}},
		handling{name: "`ROLLBACK; BEGIN`, another order", handle: all("order", "ROLLBACK; BEGIN", "order")},
		handling{name: "`ROLLBACK AND CHAIN`, another order", handle: all("order", "ROLLBACK AND CHAIN", "order")},
		handling{name: "`SELECT 1/0`, `COMMIT`, all ignored", handle: ignoring("order", "SELECT 1/0", "COMMIT")},
		handling{name: "`SELECT 1/0`, `COMMIT`, and then `500`", handle: func(c *call) error {
			_ = ignoring("order", "SELECT 1/0", "COMMIT")(c)
			return errAway
		}},
		handling{name: "`BEGIN` once more", over: overEach, handle: all("BEGIN", "order")},
		handling{name: "`BEGIN`, `COMMIT`", handle: all("BEGIN", "order", "COMMIT")},
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

func failings() []handling {
	const taken = "INSERT INTO items VALUES (1)"
	return in("Statements that fail, and savepoints",
		handling{name: "a unique violation, returned", over: overEach, handle: all("order", taken)},
		handling{name: "a unique violation, ignored", over: overEach, handle: ignoring("order", taken)},
		handling{name: "the same, ignored, another statement", over: overEach, handle: ignoring(taken, "order")},
		handling{name: "a first statement that fails, ignored", over: overEach, handle: ignoring("INSERT INTO nowhere VALUES (1)", "order")},
		handling{name: "`ON CONFLICT DO NOTHING`", handle: all(taken+" ON CONFLICT DO NOTHING", "order")},
		handling{name: "a unique violation in `tx.Begin`, its `Rollback`", over: overPgx, handle: func(c *call) error {
			sp, err := c.tx.Begin(c)
			if err != nil {
				return err
			}
			if _, err := sp.Exec(c, taken); err != nil {
				if err := sp.Rollback(c); err != nil {
					return err
				}
			}
			return c.order()
		}},
		handling{name: "`tx.Begin`, its `Commit`", over: overPgx, handle: func(c *call) error {
			sp, err := c.tx.Begin(c)
			if err != nil {
				return err
			}
			defer sp.Rollback(c) //nolint:errcheck // as tutorials have it
			if _, err := sp.Exec(c, "INSERT INTO orders VALUES ($1)", c.run); err != nil {
				return err
			}
			return sp.Commit(c)
		}},
		handling{name: "`tx.Begin`, deferred `Rollback` alone", over: overPgx, orders: -1, so: "`Commit` the savepoint", handle: func(c *call) error {
			sp, err := c.tx.Begin(c)
			if err != nil {
				return err
			}
			defer sp.Rollback(c) //nolint:errcheck // as tutorials have it
			_, err = sp.Exec(c, "INSERT INTO orders VALUES ($1)", c.run)
			return err
		}},
		handling{name: "`tx.Begin`, left open", over: overPgx, handle: func(c *call) error {
			sp, err := c.tx.Begin(c)
			if err != nil {
				return err
			}
			_, err = sp.Exec(c, "INSERT INTO orders VALUES ($1)", c.run)
			return err
		}},
		handling{name: "savepoints in savepoints, the inner ones rolled back", over: overPgx, handle: func(c *call) error {
			return pgx.BeginFunc(c, c.tx, func(tx pgx.Tx) error {
				_ = pgx.BeginFunc(c, tx, func(tx pgx.Tx) error {
					_, _ = tx.Exec(c, "INSERT INTO orders VALUES ($1)", c.run)
					return errAway
				})
				_ = pgx.BeginFunc(c, tx, func(tx pgx.Tx) error {
					_, err := tx.Exec(c, taken)
					return err
				})
				_, err := tx.Exec(c, "INSERT INTO orders VALUES ($1)", c.run)
				return err
			})
		}},
		handling{name: "`SAVEPOINT`, `RELEASE`", over: overEach, handle: all("SAVEPOINT a", "order", "RELEASE SAVEPOINT a")},
		handling{name: "`SAVEPOINT`, left open", over: overEach, handle: all("SAVEPOINT a", "order")},
		handling{name: "`SAVEPOINT`, rolled back", over: overEach, orders: -1, handle: all("SAVEPOINT a", "order", "ROLLBACK TO SAVEPOINT a")},
		handling{name: "`SAVEPOINT`, a unique violation, `ROLLBACK TO`", over: overEach, handle: func(c *call) error {
			if err := all("SAVEPOINT a")(c); err != nil {
				return err
			}
			if err := all(taken)(c); err != nil {
				if err := all("ROLLBACK TO a")(c); err != nil {
					return err
				}
			}
			return c.order()
		}},
		handling{name: "a deadlock, returned", over: overMySQL, handle: (*call).deadlock},
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
		handling{name: "a row that another transaction has locked, `NOWAIT`, ignored", over: overMySQL, handle: func(c *call) error {
			other, err := c.desk.office.(overDB).BeginTx(c, nil)
			if err != nil {
				return err
			}
			defer other.Rollback() //nolint:errcheck // nothing of it is to stay
			if _, err := other.ExecContext(c, "SELECT id FROM items FOR UPDATE"); err != nil {
				return err
			}
			return ignoring("order", "SELECT id FROM items FOR UPDATE NOWAIT")(c)
		}},
		handling{name: "`statement_timeout` of a statement, ignored", handle: ignoring("order", "SET LOCAL statement_timeout = 20", "SELECT pg_sleep(1)")},
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
		handling{
			name: "a constraint trigger that raises at COMMIT",
			setup: "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no stock'; END $$; " +
				"CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON notes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
			undo:   "DROP FUNCTION refuse CASCADE",
			handle: all("order", "INSERT INTO notes VALUES (1)"),
		},
		handling{name: "`serializable`, and another transaction in its way", handle: func(c *call) error {
			if err := all("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SELECT count(*) FROM items")(c); err != nil {
				return err
			}
			if c.run == 1 {
				if _, err := c.desk.admin().Exec(c, "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM orders; INSERT INTO items VALUES (2); COMMIT"); err != nil {
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
		set("", "SET LOCAL statement_timeout = '1s'"),
		set("", "SET LOCAL lock_timeout = 1"),
		set("", "SET LOCAL idle_in_transaction_session_timeout = '1s'"),
		handling{name: "`SET LOCAL idle_in_transaction_session_timeout = 20`, and a pause", handle: func(c *call) error {
			err := all("order", "SET LOCAL idle_in_transaction_session_timeout = 20")(c)
			time.Sleep(200 * time.Millisecond)
			return err
		}},
		set("`RESET ROLE` before it answers", "SET LOCAL ROLE pg_monitor"),
		set("the same", "SET ROLE pg_monitor"),
		handling{name: "`SET LOCAL ROLE pg_monitor`, `RESET ROLE`", handle: all("order", "SET LOCAL ROLE pg_monitor", "RESET ROLE")},
		set("", "SET LOCAL SESSION AUTHORIZATION pg_monitor"),
		set("", "SET LOCAL transaction_read_only = on"),
		set("", "SET TRANSACTION READ ONLY"),
		set(keeps, "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"),
		set("", "SET LOCAL session_replication_role = replica"),
		set("", "SET LOCAL synchronous_commit = off"),
		set("", "SET LOCAL row_security = off"),
		set("", "SET CONSTRAINTS ALL IMMEDIATE"),
		set("", "SET LOCAL plan_cache_mode = force_generic_plan"),
		set("", "SET LOCAL enable_indexscan = off"),
		set("", "SET LOCAL client_encoding = latin1"),
		set("", "SET LOCAL standard_conforming_strings = off"),
		set("", "SET LOCAL bytea_output = escape"),
		handling{name: "`SET TRANSACTION ISOLATION LEVEL SERIALIZABLE` first", handle: all("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "order")},
		handling{name: "`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ` first", handle: all("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "order")},
		handling{name: "`SET TRANSACTION ISOLATION LEVEL SERIALIZABLE` second", handle: all("order", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")},
		set("set back what was set, one by one", "RESET ALL"),
		set("", "DISCARD ALL"),
		set("", "DISCARD PLANS"),
		set("", "DEALLOCATE ALL"),
	)
}

func lasting() []handling {
	return in("What lasts as long as the session or the transaction",
		handling{name: "`LISTEN`, `NOTIFY`", handle: all("LISTEN orders", "order", "NOTIFY orders, '1'")},
		handling{name: "`pg_advisory_xact_lock`", handle: all("SELECT pg_advisory_xact_lock(1)", "order")},
		handling{name: "`LOCK TABLE orders`", handle: all("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE", "order")},
		handling{name: "`LOCK TABLE latch_entries IN SHARE MODE`", handle: all("LOCK TABLE latch_entries IN SHARE MODE", "order")},
		handling{name: "`TRUNCATE orders`", handle: all("TRUNCATE orders", "order")},
		handling{name: "`SELECT ... FOR UPDATE`", handle: all("SELECT * FROM items FOR UPDATE", "order")},
		handling{name: "a cursor, left open", handle: all("DECLARE c CURSOR FOR SELECT generate_series(1, 1000)", "FETCH 1 FROM c", "order")},
		handling{name: "a cursor `WITH HOLD`, left open", handle: all("DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 1000)", "order")},
		handling{name: "`CREATE TEMP TABLE ... ON COMMIT DROP`", handle: all("CREATE TEMP TABLE basket (id int) ON COMMIT DROP", "INSERT INTO basket VALUES (1)", "order")},
		handling{name: "`CREATE TABLE` and `DROP TABLE`", handle: all("CREATE TABLE basket (id int)", "order", "DROP TABLE basket")},
		handling{name: "`VACUUM`, ignored", handle: ignoring("order", "VACUUM orders")},
		handling{name: "`CREATE INDEX CONCURRENTLY`, its error returned", handle: all("order", "CREATE INDEX CONCURRENTLY ON orders (run)")},
		handling{name: "`tx.CopyFrom`", over: overPgx, orders: 3, handle: func(c *call) error {
			_, err := c.tx.CopyFrom(c, pgx.Identifier{"orders"}, []string{"run"}, pgx.CopyFromRows([][]any{{c.run}, {c.run}, {c.run}}))
			return err
		}},
		handling{name: "`pgx.Batch`", over: overPgx, orders: 2, handle: func(c *call) error {
			b := new(pgx.Batch)
			b.Queue("INSERT INTO orders VALUES ($1)", c.run)
			b.Queue("INSERT INTO orders VALUES ($1)", c.run)
			return c.tx.SendBatch(c, b).Close()
		}},
		handling{name: "`pgx.Batch`, not closed", over: overPgx, handle: func(c *call) error {
			b := new(pgx.Batch)
			b.Queue("INSERT INTO orders VALUES ($1)", c.run)
			b.Queue("INSERT INTO orders VALUES ($1)", c.run)
			_, err := c.tx.SendBatch(c, b).Exec()
			return err
		}},
		handling{name: "`tx.LargeObjects`", over: overPgx, handle: func(c *call) error {
			objects := c.tx.LargeObjects()
			id, err := objects.Create(c, 0)
			if err != nil {
				return err
			}
			o, err := objects.Open(c, id, pgx.LargeObjectModeWrite)
			if err != nil {
				return err
			}
			if _, err := o.Write([]byte("a picture")); err != nil {
				return err
			}
			return c.order()
		}},
		handling{name: "`tx.Prepare`", over: overPgx, handle: func(c *call) error {
			if _, err := c.tx.Prepare(c, "insert_order", "INSERT INTO orders VALUES ($1)"); err != nil {
				return err
			}
			_, err := c.tx.Exec(c, "insert_order", c.run)
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
		handling{name: leftOpen, over: overSteady, so: "close rows before the handler returns: over MariaDB the order is either committed or rolled back", handle: func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			if c.sqlTx != nil {
				_, err := c.sqlTx.QueryContext(c, c.desk.thousandRows())
				return err
			}
			_, err := c.tx.Query(c, "SELECT generate_series(1, 1000)")
			return err
		}},
		handling{name: "rows of the first statement, left open", over: overPgx, so: "the same", orders: -1, handle: func(c *call) error {
			_, err := c.tx.Query(c, "SELECT generate_series(1, $1)", 1000)
			return err
		}},
		handling{name: "a statement while rows are open", over: overEach, handle: func(c *call) error {
			if c.sqlTx != nil {
				rows, err := c.sqlTx.QueryContext(c, c.desk.thousandRows())
				if err != nil {
					return err
				}
				defer rows.Close()
				for rows.Next() {
					return c.order()
				}
				return rows.Err()
			}
			rows, err := c.tx.Query(c, "SELECT generate_series(1, 1000)")
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				return c.order()
			}
			return rows.Err()
		}},
		handling{name: notScanned, over: overSteady, so: "scan it: over MariaDB the order is either committed or rolled back", handle: func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			if c.sqlTx != nil {
				_ = c.sqlTx.QueryRowContext(c, "SELECT 1")
				return nil
			}
			_ = c.tx.QueryRow(c, "SELECT 1")
			return nil
		}},
	)
}

// thousandRows is a query of so many.
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
	other, err := c.desk.office.(overDB).BeginTx(c, nil)
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
	holder, err := pgx.ConnectConfig(c, c.desk.admin().Config())
	if err != nil {
		return nil, err
	}
	if _, err := holder.Exec(c, "SELECT pg_advisory_lock(7)"); err != nil {
		return nil, err
	}
	late := *c
	late.Context = context.WithoutCancel(c)
	var done sync.WaitGroup
	done.Go(func() { _ = late.exec("SELECT pg_advisory_xact_lock(7)") })
	for n := 0; n == 0; {
		if err := c.desk.admin().QueryRow(c, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").Scan(&n); err != nil {
			return nil, err
		}
	}
	done.Go(func() {
		time.Sleep(100 * time.Millisecond) // on the clock of the server
		_ = holder.Close(late)
	})
	return done.Wait, nil
}

func lifetimes() []handling {
	return in("Goroutines, and use after the handler has returned",
		handling{name: "goroutines, one after the other", over: overEach, orders: 3, handle: func(c *call) error {
			errs := make(chan error)
			for range 3 {
				go func() { errs <- c.order() }()
				if err := <-errs; err != nil {
					return err
				}
			}
			return nil
		}},
		handling{name: "a goroutine that has a statement in progress when the handler returns", so: "wait for the goroutines before the answer", handle: func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			wait, err := c.begins()
			c.desk.later = func() error { wait(); return nil }
			return err
		}},
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
		handling{name: "its savepoint, kept and used after the answer", over: overPgx, handle: func(c *call) error {
			sp, err := c.tx.Begin(c)
			if err != nil {
				return err
			}
			c.desk.later = func() error {
				if _, err := sp.Exec(context.Background(), "INSERT INTO orders VALUES ($1)", c.run); err == nil {
					return errors.New("it was executed")
				}
				return nil
			}
			return c.order()
		}},
		handling{name: "a prepared statement of it, kept and used after the answer", over: overSQLs, handle: func(c *call) error {
			stmt, err := c.sqlTx.PrepareContext(c, c.desk.reads(insertRun))
			if err != nil {
				return err
			}
			c.desk.later = func() error {
				if _, err := stmt.ExecContext(context.Background(), c.run); err == nil {
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
		handling{name: "the client goes away, and the handler waits for the end of `r.Context()`", so: "it does not end with the client", handle: func(c *call) error {
			err := c.order()
			if c.run == 1 {
				c.desk.leave()
				ctx, cancel := context.WithTimeout(c, 200*time.Millisecond)
				defer cancel()
				<-ctx.Done()
				if c.Err() != nil {
					return c.Err()
				}
			}
			return err
		}},
	)
}

func answerings() []handling {
	then := func(f func(c *call) error) func(c *call) error {
		return func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			return f(c)
		}
	}
	return in("Answers",
		handling{name: "`500`", over: overEach, handle: then(func(*call) error { return errAway })},
		handling{name: "`503`", handle: then(func(c *call) error { return c.answer(http.StatusServiceUnavailable, "away") })},
		handling{name: "`400` after the `INSERT`", over: overEach, so: "check first, or keep only successes ([`WithFinal`](exactly-once.md#what-happens-when))", handle: then(func(c *call) error { return c.answer(http.StatusBadRequest, "no such sku") })},
		handling{name: "`400`, and the order is rolled back to a savepoint", orders: -1, handle: func(c *call) error {
			if err := all("SAVEPOINT a", "order", "ROLLBACK TO a")(c); err != nil {
				return err
			}
			return c.answer(http.StatusBadRequest, "no such sku")
		}},
		handling{name: "`303`", handle: then(func(c *call) error {
			http.Redirect(c.w, c.r, "/orders/1", http.StatusSeeOther)
			c.answered = true
			return nil
		})},
		handling{name: "`204`, no body", handle: then(func(c *call) error { return c.answer(http.StatusNoContent, "") })},
		handling{name: "nothing at all, which is `200`", handle: then(func(c *call) error { c.answered = true; return nil })},
		handling{name: "`201`, and a `500` after it", handle: then(func(c *call) error {
			_ = c.answer(http.StatusCreated, "an order")
			return errAway
		})},
		handling{name: "`103`, and then `201`", handle: then(func(c *call) error { c.w.WriteHeader(http.StatusEarlyHints); return nil })},
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
		handling{name: "`panic` before any statement", orders: -1, handle: func(*call) error { panic(errAway) }},
		handling{name: "`panic(http.ErrAbortHandler)`", handle: then(func(*call) error { panic(http.ErrAbortHandler) })},
		handling{name: "`runtime.Goexit`", over: overEach, handle: then(func(*call) error { runtime.Goexit(); return nil })},
		handling{name: "`201`, then `panic`", handle: then(func(c *call) error { _ = c.answer(http.StatusCreated, "an order"); panic(errAway) })},
		handling{name: "`lock.Commit`, and then `500`", over: overEach, handle: then(func(c *call) error { return errors.Join(lock.Commit(c), errAway) })},
		handling{name: "`lock.Commit`, and then `201`", over: overEach, handle: then(func(c *call) error { return lock.Commit(c) })},
	)
}

func elsewheres() []handling {
	return in("Other connections and transactions",
		handling{name: "a row over the pool, and `201`", over: overServers, handle: func(c *call) error {
			return errors.Join(c.order(), c.beside())
		}},
		handling{name: "a row over the pool, and `500`", over: overServers, so: besideTwice, handle: func(c *call) error {
			return errors.Join(c.order(), c.beside(), errAway)
		}},
		handling{name: "a transaction of its own on the pool, committed, and `201`", handle: func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			if c.sqlTx != nil {
				tx, err := c.desk.db.BeginTx(c, nil)
				if err != nil {
					return err
				}
				defer tx.Rollback() //nolint:errcheck // as tutorials have it
				if _, err := tx.ExecContext(c, "INSERT INTO orders VALUES ($1, true)", c.run); err != nil {
					return err
				}
				return tx.Commit()
			}
			return pgx.BeginFunc(c, c.desk.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(c, "INSERT INTO orders VALUES ($1, true)", c.run)
				return err
			})
		}},
		handling{name: "the same, for at most 0.2 s, for a row that the first one has locked", so: "without a bound, it waits for ever", handle: func(c *call) error {
			if err := all("order", "UPDATE items SET id = id")(c); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c, 200*time.Millisecond)
			defer cancel()
			if c.sqlTx != nil {
				_, err := c.desk.db.ExecContext(ctx, "UPDATE items SET id = id")
				return err
			}
			_, err := c.desk.pool.Exec(ctx, "UPDATE items SET id = id")
			return err
		}},
		handling{name: "a second connection of a pool of one, for at most 0.2 s", pool: 1, so: "without a bound, it waits for ever", handle: func(c *call) error {
			late := *c
			ctx, cancel := context.WithTimeout(c, 200*time.Millisecond)
			defer cancel()
			late.Context = ctx
			return errors.Join(c.order(), late.beside())
		}},
		handling{name: "a second connection while the transaction has written, for at most 0.2 s", over: overSQLite, so: "without a bound, it waits for as long as the pool says", handle: func(c *call) error {
			late := *c
			ctx, cancel := context.WithTimeout(c, 200*time.Millisecond)
			defer cancel()
			late.Context = ctx
			return errors.Join(c.order(), late.beside())
		}},
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
		handling{name: "`pgstore.Tx` over `NewSQL`, or `SQLTx` over `New`, and its `ok` ignored", orders: -1, handle: func(c *call) error {
			if c.sqlTx != nil {
				tx, _ := pgstore.Tx(c)
				_, err := tx.Exec(c, "INSERT INTO orders VALUES ($1)", c.run)
				return err
			}
			tx, _ := pgstore.SQLTx(c)
			_, err := tx.ExecContext(c, "INSERT INTO orders VALUES ($1)", c.run)
			return err
		}},
		handling{name: "`pg_terminate_backend(pg_backend_pid())`, ignored", handle: ignoring("order", "SELECT pg_terminate_backend(pg_backend_pid())")},
		handling{name: "the session is ended by an operator when the handler returns", handle: func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			_, err := c.desk.admin().Exec(c, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'")
			return err
		}},
		handling{name: "`tx.Conn().Close(ctx)`", over: overPgx, handle: func(c *call) error {
			if err := c.order(); err != nil {
				return err
			}
			return c.tx.Conn().Close(c)
		}},
		handling{name: "`tx.Conn().Begin(ctx)`, its `Commit`", over: overPgx, handle: func(c *call) error {
			tx, err := c.tx.Conn().Begin(c)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(c, "INSERT INTO orders VALUES ($1)", c.run); err != nil {
				return err
			}
			return tx.Commit(c)
		}},
		handling{name: "the claim's own row, locked", handle: all("SELECT * FROM latch_entries FOR UPDATE", "order")},
	)
}

const besideTwice = "write through the transaction of the guard: **the row beside it is there, and with the repeat twice**"
