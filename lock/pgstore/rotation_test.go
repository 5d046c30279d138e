package pgstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/pgstore/internal/testkit/pgxtest"
)

// rotating is a database that asks the role "shop" for a password, which changes.
type rotating struct {
	cluster  *pgtest.Cluster
	url      string
	password atomic.Pointer[string]
}

func newRotating(t *testing.T) *rotating {
	t.Helper()
	c := pgtest.Start(t)
	c.Exec(t, "postgres", `
		CREATE ROLE shop LOGIN;
		ALTER DATABASE postgres OWNER TO shop;
		GRANT CREATE ON SCHEMA public TO shop;`)
	// The server itself can write its file of authentication rules.
	data := one[string](t, pgxtest.Connect(t, c.URL("postgres", "")), "SHOW data_directory")
	c.Exec(t, "postgres", `COPY (VALUES ('host all shop all scram-sha-256'), ('host all all all trust')) TO '`+data+`/pg_hba.conf'`)
	c.Exec(t, "postgres", "SELECT pg_reload_conf()")
	r := &rotating{cluster: c, url: c.URL("postgres", "shop")}
	r.rotate(t, "first")
	eventually(t, func() bool { // until the file is read, a wrong password is as good
		_, err := pgx.Connect(t.Context(), strings.Replace(r.url, "shop@", "shop:wrong@", 1))
		return err != nil
	})
	return r
}

// rotate changes the password.
func (r *rotating) rotate(t *testing.T, password string) {
	t.Helper()
	r.cluster.Exec(t, "postgres", "ALTER ROLE shop PASSWORD '"+password+"'")
	r.password.Store(&password)
}

// end ends the sessions of the role, except for the processes in spared.
func (r *rotating) end(t *testing.T, spared ...uint32) {
	t.Helper()
	list := "0"
	for _, pid := range spared {
		list += fmt.Sprintf(", %d", pid)
	}
	r.cluster.Exec(t, "postgres", "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'shop' AND pid NOT IN ("+list+")")
}

func (r *rotating) pool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return newPool(t, r.url, func(cfg *pgxpool.Config) { cfg.BeforeConnect = r.beforeConnect })
}

// open returns a database without a pool of pgx.
func (r *rotating) open(t *testing.T, beforeConnect func(context.Context, *pgx.ConnConfig) error) *sql.DB {
	t.Helper()
	return stdlib.OpenDB(*must.Get(pgx.ParseConfig(r.url))(t), stdlib.OptionBeforeConnect(beforeConnect))
}

func (r *rotating) beforeConnect(_ context.Context, cfg *pgx.ConnConfig) error {
	cfg.Password = *r.password.Load()
	return nil
}

// claimAtOnce claims a number of keys at the same time, and returns the error of one of the claims.
func claimAtOnce(t *testing.T, s *pgstore.Store, keys int) error {
	t.Helper()
	errs := make([]error, keys)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, errs[i] = s.Claim(ctx, fmt.Sprint(i), lock.Claim{Token: "t", Attempt: 1, Lease: time.Minute})
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// The store's own connections have the password that the pool has, also when it has changed
// since the store was made, and while the pool has connections that are older.
func TestPasswordsThatChange(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T, r *rotating) (*pgstore.Store, *sql.DB){
		"NewSQL, OptionBeforeConnect": func(t *testing.T, r *rotating) (*pgstore.Store, *sql.DB) {
			t.Helper()
			db := r.open(t, r.beforeConnect)
			return pgstore.NewSQL(db), db
		},
		"NewSQL, over a pool": func(t *testing.T, r *rotating) (*pgstore.Store, *sql.DB) {
			t.Helper()
			db := stdlib.OpenDBFromPool(r.pool(t))
			return pgstore.NewSQL(db), db
		},
		"New": func(t *testing.T, r *rotating) (*pgstore.Store, *sql.DB) {
			t.Helper()
			return pgstore.New(r.pool(t)), nil
		},
	} {
		for _, older := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, older connections %v", name, older), func(t *testing.T) {
				t.Parallel()
				r := newRotating(t)
				s, db := open(t, r)
				if db != nil {
					t.Cleanup(func() { require.NoError(t, db.Close()) })
				}
				t.Cleanup(s.Close)
				migrate(t, s)
				require.NoError(t, claimAtOnce(t, s, 20))
				for _, password := range []string{"second", "third"} {
					var spared []uint32
					if older && db != nil { // idle connections of the pool stay
						spared = append(spared, pidOf(t, db))
					}
					r.rotate(t, password)
					r.end(t, spared...)
					var err error
					for range 10 { // calls that meet a session which has ended have no answer
						err = claimAtOnce(t, s, 1)
					}
					require.NoError(t, err)
					require.NoError(t, claimAtOnce(t, s, 20))
				}
			})
		}
	}
}

func pidOf(t *testing.T, db *sql.DB) (pid uint32) {
	t.Helper()
	conn := must.Get(db.Conn(t.Context()))(t)
	require.NoError(t, conn.Raw(func(own any) error {
		pid = own.(*stdlib.Conn).Conn().PgConn().PID()
		return nil
	}))
	require.NoError(t, conn.Close())
	return pid
}

// A password that is wrong for all is reported, and asked for a few times only.
func TestPasswordThatIsWrong(t *testing.T) {
	t.Parallel()
	r := newRotating(t)
	var connects atomic.Int64
	db := r.open(t, func(ctx context.Context, cfg *pgx.ConnConfig) error {
		connects.Add(1)
		return r.beforeConnect(ctx, cfg)
	})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	s := pgstore.NewSQL(db)
	t.Cleanup(s.Close)
	migrate(t, s)
	wrong := "wrong"
	r.rotate(t, "second")
	r.password.Store(&wrong)
	r.end(t)
	connects.Store(0)
	var err error
	for range 6 { // of which the first meet sessions that have ended
		err = claimAtOnce(t, s, 1)
	}
	require.ErrorIs(t, err, lock.ErrNotApplied)
	require.ErrorContains(t, err, "password authentication failed")
	require.LessOrEqual(t, connects.Load(), int64(20))
}
