// Package oversqlite_test has handlers as people write them with GORM, sqlc, ent, bun and sqlx, over
// sqlitestore.
package oversqlite_test

import (
	"context"
	"database/sql"
	"errors"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"

	"github.com/httplatch/httplatch/docs/snippets/internal/sqlc/oversql"
)

// outcome classifies the effects of a request and its repeat.
type outcome uint8

const (
	kept   outcome = iota // one row, and the repeat gets the first answer
	none                  // the same without a row
	undone                // no row, and the repeat runs
	twice                 // a row of each run, outside of the transaction: the rule of the guard is broken
)

// handling is a handler. An error is answered with 500, and nothing with 201.
type handling struct {
	name   string
	want   outcome
	handle func(c *call) error
}

// call is one run of a handler.
type call struct {
	context.Context //nolint:containedctx // of the run

	db  *sql.DB
	tx  *sql.Tx // of the guard
	run int
}

var errAway = errors.New("the handler fails")

func handlings() (all []handling) {
	for _, of := range [][]handling{sqlcHandlings(), gormHandlings(), entHandlings(), bunHandlings(), sqlxHandlings()} {
		all = append(all, of...)
	}
	return all
}

func sqlcHandlings() []handling {
	return []handling{
		{"sqlc, New(tx)", kept, func(c *call) error { return oversql.New(c.tx).InsertOrder(c, int32(c.run)) }},
		{"sqlc, WithTx(tx)", kept, func(c *call) error { return oversql.New(c.db).WithTx(c.tx).InsertOrder(c, int32(c.run)) }},
		{"sqlc, and then 500", undone, func(c *call) error {
			return errors.Join(oversql.New(c.tx).InsertOrder(c, int32(c.run)), errAway)
		}},
		{"sqlc, queries that were prepared on the *sql.DB, WithTx(tx)", undone, func(c *call) error {
			queries, err := oversql.Prepare(c, c.db)
			if err != nil {
				return err
			}
			defer queries.Close()
			return queries.WithTx(c.tx).InsertOrder(c, int32(c.run))
		}},
		{"sqlc, db.Begin, WithTx, Commit, and then 500", twice, func(c *call) error {
			tx, err := c.db.BeginTx(c, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() //nolint:errcheck // as tutorials have it
			return errors.Join(oversql.New(c.db).WithTx(tx).InsertOrder(c, int32(c.run)), tx.Commit(), errAway)
		}},
	}
}

// gormDialect is GORM's own for tests, which writes statements as SQLite reads them. The dialects of
// others bring a second SQLite with them.
type gormDialect struct{ tests.DummyDialector }

func (gormDialect) SavePoint(tx *gorm.DB, name string) error {
	return tx.Exec("SAVEPOINT " + name).Error
}

func (gormDialect) RollbackTo(tx *gorm.DB, name string) error {
	return tx.Exec("ROLLBACK TO SAVEPOINT " + name).Error
}

// gormOrder is an order as GORM has it.
type gormOrder struct{ Run int }

func (gormOrder) TableName() string { return "orders" }

// gormItem has a primary key, which is taken.
type gormItem struct {
	ID int `gorm:"primaryKey"`
}

func (gormItem) TableName() string { return "items" }

func gormHandlings() []handling {
	open := func(c *call) *gorm.DB {
		db, err := gorm.Open(gormDialect{}, &gorm.Config{Logger: logger.Discard, ConnPool: c.db})
		if err != nil {
			panic(err)
		}
		return db
	}
	inTx := func(name string, want outcome, handle func(c *call, o *gorm.DB) error) handling {
		return handling{"GORM, " + name, want, func(c *call) error {
			o := open(c).Session(&gorm.Session{NewDB: true, Context: c})
			o.Statement.ConnPool = c.tx
			return handle(c, o)
		}}
	}
	create := func(c *call, o *gorm.DB) error { return o.Create(&gormOrder{c.run}).Error }
	return []handling{
		inTx("o.Statement.ConnPool = tx, Create", kept, create),
		inTx("the same, and then 500", undone, func(c *call, o *gorm.DB) error { return errors.Join(create(c, o), errAway) }),
		inTx("o.Transaction(f)", kept, func(c *call, o *gorm.DB) error {
			return o.Transaction(func(o *gorm.DB) error { return create(c, o) })
		}),
		inTx("o.Transaction(f), which fails and is passed over", none, func(c *call, o *gorm.DB) error {
			_ = o.Transaction(func(o *gorm.DB) error { return errors.Join(create(c, o), errAway) })
			return nil
		}),
		inTx("a unique violation, passed over", kept, func(c *call, o *gorm.DB) error {
			_ = o.Create(&gormItem{1}).Error
			return create(c, o)
		}),
		inTx("o.Begin, Create, Commit", undone, func(c *call, o *gorm.DB) error {
			tx := o.Begin()
			defer tx.Rollback()
			if err := create(c, tx); err != nil {
				return err
			}
			return tx.Commit().Error
		}),
		{"GORM, the service's own db.Create, and then 500", twice, func(c *call) error {
			return errors.Join(create(c, open(c).WithContext(c)), errAway)
		}},
	}
}

// entDriver is a driver of ent over a transaction.
type entDriver struct{ *entsql.Driver }

// Tx has ent work in the transaction that there is.
func (d entDriver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

func entHandlings() []handling {
	create := func(c *call, d dialect.Driver) error {
		spec := sqlgraph.NewCreateSpec("orders", nil)
		spec.SetField("run", field.TypeInt, c.run)
		return sqlgraph.CreateNode(c, d, spec)
	}
	inTx := func(c *call) dialect.Driver {
		return entDriver{entsql.NewDriver(dialect.SQLite, entsql.Conn{ExecQuerier: c.tx})}
	}
	return []handling{
		{"ent, entsql.Conn{ExecQuerier: tx}, Create", kept, func(c *call) error { return create(c, inTx(c)) }},
		{"ent, the same, and then 500", undone, func(c *call) error { return errors.Join(create(c, inTx(c)), errAway) }},
		{"ent, the service's own client, and then 500", twice, func(c *call) error {
			return errors.Join(create(c, entsql.OpenDB(dialect.SQLite, c.db)), errAway)
		}},
	}
}

// bunOrder is an order as bun has it.
type bunOrder struct {
	bun.BaseModel `bun:"table:orders"`

	Run int
}

func bunHandlings() []handling {
	open := func(c *call) *bun.DB { return bun.NewDB(c.db, sqlitedialect.New()) }
	create := func(c *call) error {
		_, err := open(c).NewInsert().Conn(c.tx).Model(&bunOrder{Run: c.run}).Exec(c)
		return err
	}
	return []handling{
		{"bun, db.NewInsert().Conn(tx)", kept, create},
		{"bun, the same, and then 500", undone, func(c *call) error { return errors.Join(create(c), errAway) }},
		{"bun, db.RunInTx, and then 500", twice, func(c *call) error {
			err := open(c).RunInTx(c, nil, func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewInsert().Model(&bunOrder{Run: c.run}).Exec(ctx)
				return err
			})
			return errors.Join(err, errAway)
		}},
	}
}

func sqlxHandlings() []handling {
	over := func(c *call) *sqlx.Tx { return &sqlx.Tx{Tx: c.tx, Mapper: sqlx.NewDb(c.db, "sqlite").Mapper} }
	const named = "INSERT INTO orders (run) VALUES (:run)"
	return []handling{
		{"sqlx, &sqlx.Tx{Tx: tx, Mapper: db.Mapper}, GetContext", kept, func(c *call) error {
			var run int
			return over(c).GetContext(c, &run, "INSERT INTO orders (run) VALUES (?) RETURNING run", c.run)
		}},
		{"sqlx, the same, BindNamed(sqlx.QUESTION, ...)", kept, func(c *call) error {
			statement, args, err := sqlx.BindNamed(sqlx.QUESTION, named, map[string]any{"run": c.run})
			if err != nil {
				return err
			}
			_, err = over(c).ExecContext(c, statement, args...)
			return err
		}},
		{"sqlx, a unique violation, passed over", kept, func(c *call) error {
			_, _ = over(c).ExecContext(c, "INSERT INTO items VALUES (1)")
			_, err := over(c).ExecContext(c, "INSERT INTO orders (run) VALUES (?)", c.run)
			return err
		}},
		{"sqlx, the service's own db.NamedExec, and then 500", twice, func(c *call) error {
			_, err := sqlx.NewDb(c.db, "sqlite").NamedExecContext(c, named, map[string]any{"run": c.run})
			return errors.Join(err, errAway)
		}},
	}
}
