package shop

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/go-sql-driver/mysql"

	"github.com/httplatch/httplatch/lock/mysqlstore"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

// kind holds the differences between the databases that package database/sql alone connects to.
type kind struct {
	tables []string
	open   func(t Target) (*sql.DB, store, error)
	tx     func(ctx context.Context) (*sql.Tx, bool)
	alone  bool // one transaction writes at a time, and another one would poll until it is over
}

var (
	mariadb = kind{
		tables: []string{
			`CREATE TABLE IF NOT EXISTS orders (
	id BIGINT AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(100) NOT NULL, sku VARCHAR(100) NOT NULL, quantity INT NOT NULL) ENGINE = InnoDB`,
			`CREATE TABLE IF NOT EXISTS answers (id VARBINARY(1024) PRIMARY KEY, answer BLOB NOT NULL) ENGINE = InnoDB`,
		},
		open: func(t Target) (*sql.DB, store, error) {
			cfg, err := mysql.ParseDSN(t.URL)
			if err != nil {
				return nil, nil, err
			}
			connector, err := mysql.NewConnector(cfg)
			if err != nil {
				return nil, nil, err
			}
			db := sql.OpenDB(connector)
			return db, mysqlstore.New(db, cfg), nil
		},
		tx: mysqlstore.Tx,
	}
	sqlite = kind{
		tables: []string{
			`CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, sku TEXT NOT NULL, quantity INTEGER NOT NULL)`,
			`CREATE TABLE IF NOT EXISTS answers (id BLOB NOT NULL PRIMARY KEY, answer BLOB NOT NULL) WITHOUT ROWID`,
		},
		open: func(t Target) (*sql.DB, store, error) {
			db, err := sql.Open("sqlite", t.URL)
			if err != nil {
				return nil, nil, err
			}
			return db, sqlitestore.New(db), nil
		},
		tx:    sqlitestore.Tx,
		alone: true,
	}
)

func overSQL(k kind) []Contender {
	return []Contender{{Ours, k.openLatch}, {Bare, k.openBare}}
}

// connect opens a database with a pool of so many connections that are kept, and makes the tables.
func (k kind) connect(ctx context.Context, t Target) (*sql.DB, store, error) {
	db, s, err := k.open(t)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(t.Pool)
	db.SetMaxIdleConns(t.Pool)
	for _, table := range k.tables {
		if _, err := db.ExecContext(ctx, table); err != nil {
			return nil, nil, errors.Join(err, db.Close())
		}
	}
	return db, s, nil
}

func (k kind) openLatch(ctx context.Context, t Target) (Shop, error) {
	db, s, err := k.connect(ctx, t)
	if err != nil {
		return nil, err
	}
	l := &latch{store: s, close: db.Close}
	l.insert = func(ctx context.Context) ([]byte, error) {
		tx, _ := k.tx(ctx)
		return insert(ctx, tx)
	}
	return l.open(ctx, t)
}

// insert inserts an order, and returns its answer.
func insert(ctx context.Context, tx *sql.Tx) ([]byte, error) {
	done, err := tx.ExecContext(ctx, `INSERT INTO orders (customer, sku, quantity) VALUES (?, ?, ?)`, customer, sku, quantity)
	if err != nil {
		return nil, err
	}
	id, err := done.LastInsertId()
	return answer(id), err
}

// bareSQL is bare by package database/sql.
type bareSQL struct {
	db   *sql.DB
	turn *sync.Mutex // nil if transactions may write at the same time
}

func (k kind) openBare(ctx context.Context, t Target) (Shop, error) {
	db, s, err := k.connect(ctx, t)
	if err != nil {
		return nil, err
	}
	s.Close() // it is not used, and has opened nothing
	b := bareSQL{db: db}
	if k.alone {
		b.turn = new(sync.Mutex)
	}
	return b, nil
}

func (b bareSQL) Order(ctx context.Context, _ string) error {
	return b.order(ctx, func(*sql.Tx, []byte) error { return nil })
}

func (b bareSQL) order(ctx context.Context, and func(tx *sql.Tx, answer []byte) error) error {
	if b.turn != nil {
		b.turn.Lock()
		defer b.turn.Unlock()
	}
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	answer, err := insert(ctx, tx)
	if err == nil {
		err = and(tx, answer)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (b bareSQL) Keep(ctx context.Context, key string) error {
	return b.order(ctx, func(tx *sql.Tx, answer []byte) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO answers (id, answer) VALUES (?, ?)`, []byte(key), answer)
		return err
	})
}

func (b bareSQL) Replay(ctx context.Context, key string) error {
	var answer []byte
	return b.db.QueryRowContext(ctx, `SELECT answer FROM answers WHERE id = ?`, []byte(key)).Scan(&answer)
}

func (b bareSQL) Close(context.Context) error { return b.db.Close() }
