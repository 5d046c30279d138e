package snippets_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"slices"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"

	"github.com/httplatch/httplatch/docs/snippets/internal/sqlc/overmysql"
	"github.com/httplatch/httplatch/docs/snippets/internal/sqlc/overpgx"
	"github.com/httplatch/httplatch/docs/snippets/internal/sqlc/oversql"
)

func libraries() []handling {
	return in("Libraries", slices.Concat(sqlcHandlings(), gormHandlings(), entHandlings(), bunHandlings(), sqlxHandlings())...)
}

// queries are those that sqlc has generated for the database of a desk.
type queries interface {
	InsertOrder(ctx context.Context, run int32) error
}

func (d *desk) queriesOf(tx *sql.Tx) queries {
	if d.over == overMySQL {
		return overmysql.New(tx)
	}
	return oversql.New(tx)
}

// queriesWith returns WithTx(tx) of New(db), and of queries that were prepared there if that is asked for.
func (d *desk) queriesWith(ctx context.Context, tx *sql.Tx, prepared bool) (queries, error) {
	if d.over == overMySQL {
		all, err := overmysql.New(d.db), error(nil)
		if prepared {
			all, err = overmysql.Prepare(ctx, d.db)
		}
		return all.WithTx(tx), err
	}
	all, err := oversql.New(d.db), error(nil)
	if prepared {
		all, err = oversql.Prepare(ctx, d.db)
	}
	return all.WithTx(tx), err
}

func sqlcHandlings() []handling {
	return []handling{
		{name: "sqlc, `New(tx)`", over: overEach, handle: func(c *call) error {
			if c.sqlTx != nil {
				return c.desk.queriesOf(c.sqlTx).InsertOrder(c, int32(c.run))
			}
			return overpgx.New(c.tx).InsertOrder(c, int32(c.run))
		}},
		{name: "sqlc, `queries.WithTx(tx)`", over: overEach, handle: func(c *call) error {
			if c.sqlTx == nil {
				return overpgx.New(c.desk.pool).WithTx(c.tx).InsertOrder(c, int32(c.run))
			}
			with, err := c.desk.queriesWith(c, c.sqlTx, false)
			return errors.Join(err, with.InsertOrder(c, int32(c.run)))
		}},
		{name: "sqlc with `emit_prepared_queries`, `WithTx(tx)` of queries that were prepared on the `*sql.DB`", over: overSQLs, so: "`New(tx)`", handle: func(c *call) error {
			with, err := c.desk.queriesWith(c, c.sqlTx, true)
			if err != nil {
				return err
			}
			defer with.(io.Closer).Close()
			return with.InsertOrder(c, int32(c.run))
		}},
	}
}

type gormOrder struct {
	Run int
}

func (gormOrder) TableName() string { return "orders" }

// gormSQLite is GORM's own dialect for tests, which writes statements as SQLite reads them. The drivers of
// others bring a second SQLite with them.
type gormSQLite struct{ tests.DummyDialector }

func (gormSQLite) SavePoint(tx *gorm.DB, name string) error {
	return tx.Exec("SAVEPOINT " + name).Error
}

func (gormSQLite) RollbackTo(tx *gorm.DB, name string) error {
	return tx.Exec("ROLLBACK TO SAVEPOINT " + name).Error
}

func (c *call) openGORM(conn gorm.ConnPool) *gorm.DB {
	cfg := gorm.Config{Logger: logger.Discard}
	var over gorm.Dialector
	switch c.desk.over {
	case overMySQL:
		over = gormmysql.New(gormmysql.Config{Conn: conn})
	case overSQLite:
		over, cfg.ConnPool = gormSQLite{}, conn
	default:
		over = postgres.New(postgres.Config{Conn: conn})
	}
	db, err := gorm.Open(over, &cfg)
	if err != nil {
		panic(err)
	}
	return db
}

func gormHandlings() []handling {
	inTx := func(name, so string, orders int, f func(c *call, o *gorm.DB) error) handling {
		return handling{name: "GORM, " + name, so: so, over: overSQLs, orders: orders, handle: func(c *call) error {
			o := c.openGORM(c.desk.db).Session(&gorm.Session{NewDB: true, Context: c, SkipDefaultTransaction: true})
			o.Statement.ConnPool = c.sqlTx
			return f(c, o)
		}}
	}
	create := func(c *call, o *gorm.DB) error { return o.Create(&gormOrder{Run: c.run}).Error }
	return []handling{
		inTx("`o.Statement.ConnPool = tx`, `Create`", "", 0, create),
		{name: "GORM, `gorm.Open` over `postgres.Config{Conn: tx}` or `mysql.Config{Conn: tx}`", over: overSQLs, handle: func(c *call) error {
			return create(c, c.openGORM(c.sqlTx).WithContext(c))
		}},
		inTx("`o.Transaction(f)`", "", 0, func(c *call, o *gorm.DB) error {
			return o.Transaction(func(o *gorm.DB) error { return create(c, o) })
		}),
		inTx("`o.Transaction(f)`, which fails and is passed over", "", -1, func(c *call, o *gorm.DB) error {
			_ = o.Transaction(func(o *gorm.DB) error { return errors.Join(create(c, o), errAway) })
			return nil
		}),
		inTx("`o.Begin`, `Create`, `Commit`", "`o.Transaction`", 0, func(c *call, o *gorm.DB) error {
			tx := o.Begin()
			defer tx.Rollback()
			if err := create(c, tx); err != nil {
				return err
			}
			return tx.Commit().Error
		}),
	}
}

// entDriver is a driver of ent over a transaction, as the page has it.
type entDriver struct{ *entsql.Driver }

// Tx has ent work in the transaction that there is.
func (d entDriver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

// entOrder is an order as ent's generated code hands it over. With an edge to another table, ent begins a
// transaction for it.
func (c *call) entOrder(edge bool) *sqlgraph.CreateSpec {
	spec := sqlgraph.NewCreateSpec("orders", nil)
	if !edge {
		spec.SetField("run", field.TypeInt, c.run)
		return spec
	}
	spec.ID = sqlgraph.NewFieldSpec("run", field.TypeInt)
	spec.ID.Value = c.run
	spec.Edges = []*sqlgraph.EdgeSpec{{
		Rel: sqlgraph.M2M, Table: "notes", Columns: []string{"run", "item"},
		Target: &sqlgraph.EdgeTarget{Nodes: []driver.Value{1}, IDSpec: sqlgraph.NewFieldSpec("id", field.TypeInt)},
	}}
	return spec
}

func (d *desk) entName() string {
	return map[string]string{overSQL: dialect.Postgres, overMySQL: dialect.MySQL, overSQLite: dialect.SQLite}[d.over]
}

func entHandlings() []handling {
	over := func(c *call) *entsql.Driver {
		return entsql.NewDriver(c.desk.entName(), entsql.Conn{ExecQuerier: c.sqlTx})
	}
	return []handling{
		{name: "ent, `entsql.Conn{ExecQuerier: tx}`, `Create`", over: overSQLs, handle: func(c *call) error {
			return sqlgraph.CreateNode(c, over(c), c.entOrder(false))
		}},
		{name: "ent, the same with an edge, for which it begins a transaction", over: overSQLs, so: "a driver whose `Tx` returns `dialect.NopTx`", handle: func(c *call) error {
			return sqlgraph.CreateNode(c, over(c), c.entOrder(true))
		}},
		{name: "ent, a driver whose `Tx` returns `dialect.NopTx`, with an edge", over: overSQLs, handle: func(c *call) error {
			return sqlgraph.CreateNode(c, entDriver{over(c)}, c.entOrder(true))
		}},
		{name: "ent, the same, `client.Tx`, its `Rollback`, and `201`", over: overSQLs, so: "`NopTx` rolls back nothing: answer with an error", handle: func(c *call) error {
			tx, err := entDriver{over(c)}.Tx(c)
			if err != nil {
				return err
			}
			return errors.Join(sqlgraph.CreateNode(c, entOf{tx, c.desk.entName()}, c.entOrder(false)), tx.Rollback())
		}},
	}
}

// entOf is the driver of a transaction, as in ent's generated code.
type entOf struct {
	dialect.ExecQuerier
	name string
}

func (d entOf) Dialect() string                        { return d.name }
func (entOf) Close() error                             { return nil }
func (d entOf) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

type bunOrder struct {
	bun.BaseModel `bun:"table:orders"`

	Run int
}

func bunHandlings() []handling {
	open := func(c *call) *bun.DB {
		switch c.desk.over {
		case overMySQL:
			return bun.NewDB(c.desk.db, mysqldialect.New())
		case overSQLite:
			return bun.NewDB(c.desk.db, sqlitedialect.New())
		default:
			return bun.NewDB(c.desk.db, pgdialect.New())
		}
	}
	return []handling{
		{name: "bun, `db.NewInsert().Conn(tx)`", over: overSQLs, handle: func(c *call) error {
			_, err := open(c).NewInsert().Conn(c.sqlTx).Model(&bunOrder{Run: c.run}).Exec(c)
			return err
		}},
		{name: "bun, `bun.Tx{Tx: tx}.NewInsert()`", over: overSQLs, so: "`db.NewInsert().Conn(tx)`: bun's `Tx` cannot be made of another", handle: func(c *call) error {
			_, err := bun.Tx{Tx: c.sqlTx}.NewInsert().Model(&bunOrder{Run: c.run}).Exec(c)
			return err
		}},
	}
}

func sqlxHandlings() []handling {
	over := func(c *call) *sqlx.Tx {
		name := map[string]string{overSQL: "pgx", overMySQL: "mysql", overSQLite: "sqlite"}[c.desk.over]
		return &sqlx.Tx{Tx: c.sqlTx, Mapper: sqlx.NewDb(c.desk.db, name).Mapper}
	}
	bound := func(c *call) (statement string, args []any, err error) {
		bind := sqlx.QUESTION
		if c.desk.over == overSQL {
			bind = sqlx.DOLLAR
		}
		return sqlx.BindNamed(bind, "INSERT INTO orders (run) VALUES (:run)", map[string]any{"run": c.run})
	}
	return []handling{
		{name: "sqlx, `&sqlx.Tx{Tx: tx, Mapper: db.Mapper}`, `GetContext` of `INSERT ... RETURNING`", over: overSQLs, handle: func(c *call) error {
			var run int
			return over(c).GetContext(c, &run, c.desk.reads(insertRun+" RETURNING run"), c.run)
		}},
		{name: "sqlx, the same, `NamedExecContext`", over: overSQLs, so: "`sqlx.BindNamed(sqlx.DOLLAR, ...)`, or `sqlx.QUESTION`: that `Tx` knows no driver", handle: func(c *call) error {
			_, err := over(c).NamedExecContext(c, "INSERT INTO orders (run) VALUES (:run)", map[string]any{"run": c.run})
			return err
		}},
		{name: "sqlx, the same, `BindNamed(sqlx.DOLLAR, ...)` or `BindNamed(sqlx.QUESTION, ...)`", over: overSQLs, handle: func(c *call) error {
			statement, args, err := bound(c)
			if err != nil {
				return err
			}
			_, err = over(c).ExecContext(c, statement, args...)
			return err
		}},
	}
}
