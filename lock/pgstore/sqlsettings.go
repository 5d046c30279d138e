package pgstore

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sqlSettings are read from connections that package database/sql has made: the package does not
// give access to its connector and the connector's hooks. When the server rejects the settings,
// because a password has changed, newer settings are read from a younger connection.
type sqlSettings struct {
	db       *sql.DB
	last     atomic.Pointer[pgx.ConnConfig]
	learning chan struct{} // has room for the one call that learns the settings again
}

func (s *sqlSettings) config(ctx context.Context) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig("host=localhost") // its parts are replaced
	if err != nil {
		return nil, fmt.Errorf("pgstore: %w", err)
	}
	err = s.withConn(ctx, func(c *pgx.Conn) error {
		s.last.Store(c.Config())
		return nil
	})
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig = s.last.Load().Copy()
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		last := s.last.Load().Copy()
		last.RuntimeParams, last.OnNotice, last.ValidateConnect = c.RuntimeParams, c.OnNotice, c.ValidateConnect // by openOwn
		*c = *last
		return nil
	}
	return cfg, nil
}

// renew tries the settings of one connection of db after the other. It closes a connection whose
// settings are also rejected, so that db makes a new one with the current settings of its hooks.
func (s *sqlSettings) renew(ctx context.Context) (changed bool, err error) {
	rejectedOnes := s.last.Load()
	select {
	case s.learning <- struct{}{}:
		defer func() { <-s.learning }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	if s.last.Load() != rejectedOnes {
		return true, nil // by another call
	}
	for range s.db.Stats().OpenConnections + 1 { // the last of them is a new one
		err = s.withConn(ctx, func(c *pgx.Conn) error {
			cfg := c.Config()
			trial, err := pgx.ConnectConfig(ctx, cfg)
			if err != nil {
				return fmt.Errorf("pgstore: %w", err)
			}
			s.last.Store(cfg)
			_ = trial.Close(ctx) // the trial is over
			return nil
		})
		if err == nil || !rejected(err) {
			break
		}
	}
	return err == nil, err
}

// withConn calls f with a connection of db. It closes the connection if f reports it as rejected.
func (s *sqlSettings) withConn(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("pgstore: %w", err)
	}
	var rejection error
	err = conn.Raw(func(own any) error {
		c, err := connOf(own)
		if err == nil {
			err = f(c.Conn())
		}
		if err != nil && rejected(err) {
			rejection = err
			_ = c.Conn().Close(ctx) // a pool of pgx below db would keep it
			return driver.ErrBadConn
		}
		return err
	})
	if rejection != nil {
		err = rejection
	}
	_ = conn.Close()
	return err
}

// rejected reports whether err says that the server, or a PgBouncer, has rejected the user.
func rejected(err error) bool {
	if _, ok := errors.AsType[tls.AlertError](err); ok { // a certificate
		return true
	}
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(answer.Code, "28") || strings.Contains(answer.Message, "authentication failed"))
}
