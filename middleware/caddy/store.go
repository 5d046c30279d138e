package latchcaddy

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/pgstore"
	"github.com/httplatch/httplatch/lock/redisstore"
	"github.com/httplatch/httplatch/lock/sealed"
)

// source names a store. Equal sources are one store in a process.
type source struct{ url, prefix, table, seal string }

// opened is a store, and how it is prepared and closed.
type opened struct {
	store   lock.Store
	prepare func(ctx context.Context) error // contacts the server; nil: there is none
	close   func()
}

// mistake is an error in an option of the app.
type mistake struct {
	option string
	error
}

func (m *mistake) Error() string { return m.option + ": " + m.error.Error() }
func (m *mistake) Unwrap() error { return m.error }

func wrongOption(option, text string) error { return &mistake{option, errors.New(text)} }

// open makes the store without contacting its server. Its error is a *mistake.
func (s source) open(ctx context.Context) (opened, error) {
	seals, err := s.seals()
	if err != nil {
		return opened{}, &mistake{"seal", err}
	}
	o, err := s.openPlain(ctx)
	if err == nil && len(seals) > 0 {
		o.store = sealed.New(o.store, seals[0], seals[1:]...)
	}
	return o, err
}

// check returns the error of open.
func (s source) check() error {
	o, err := s.open(context.Background()) //nolint:forbidigo // a Caddyfile is read without a context
	if err == nil {
		o.close()
	}
	return err
}

func (s source) openPlain(ctx context.Context) (opened, error) {
	scheme, _, _ := strings.Cut(s.url, ":")
	switch {
	case s.url == "":
		return opened{}, wrongOption("store", "there is none: add "+addStore)
	case scheme == "postgres", scheme == "postgresql":
		return s.openPostgres(ctx)
	case s.table != "":
		return opened{}, wrongOption("table", "it is for a store in PostgreSQL: remove it, or write store postgres://host/database")
	case s.url == "memory":
		if s.prefix != "" {
			return opened{}, wrongOption("prefix", "it is for a store in Redis: remove it, or write store redis://host:6379")
		}
		return opened{store: memstore.New(), close: func() {}}, nil
	case scheme == "unix", strings.HasPrefix(scheme, "redis"):
		return s.openRedis(ctx)
	}
	return opened{}, wrongOption("store", "this is no store: write redis://host:6379, postgres://user@host/database or memory")
}

func (s source) openRedis(ctx context.Context) (opened, error) {
	opts := []redisstore.Option{redisstore.WithoutCheck()}
	if s.prefix != "" {
		opts = append(opts, redisstore.WithPrefix(s.prefix))
	}
	store, err := redisstore.Open(ctx, s.url, opts...)
	if err != nil {
		return opened{}, wrongOption("store", strings.TrimPrefix(err.Error(), "redisstore.Open: "))
	}
	return opened{store, store.Check, func() { _ = store.Close() }}, nil
}

func (s source) openPostgres(ctx context.Context) (o opened, err error) {
	if s.prefix != "" {
		return opened{}, wrongOption("prefix", "it is for a store in Redis: write table, or store redis://host:6379")
	}
	var opts []pgstore.Option
	if s.table != "" {
		if opts, err = tableOption(s.table); err != nil {
			return opened{}, &mistake{"table", err}
		}
	}
	cfg, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		return opened{}, &mistake{"store", fmt.Errorf("the URL cannot be read: %w", err)}
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return opened{}, &mistake{"store", err}
	}
	store := pgstore.New(pool, opts...)
	prepare := func(ctx context.Context) error {
		if err := store.Migrate(ctx); err != nil {
			return err
		}
		return store.Check(ctx)
	}
	return opened{store, prepare, func() { store.Close(); pool.Close() }}, nil
}

// tableOption turns the panic of a constructor into an error: the name comes from a file.
func tableOption(name string) (opts []pgstore.Option, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return []pgstore.Option{pgstore.WithTable(name)}, nil
}

// seals returns the AEADs of the keys, none if there are no keys.
func (s source) seals() ([]cipher.AEAD, error) {
	var all []cipher.AEAD
	for i, text := range strings.Fields(s.seal) {
		key, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(key) != 32 {
			return nil, fmt.Errorf("key %d is no base64 of 32 bytes: make one with openssl rand -base64 32", i+1)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		all = append(all, aead)
	}
	return all, nil
}

const (
	prepareTime  = 3 * time.Second // at the start of a configuration
	prepareAgain = 5 * time.Second // between later attempts
	closeTime    = 10 * time.Second
)

// shared is a store with its Locker, for all configurations that name it.
type shared struct {
	opened

	locker *lock.Locker
	logger *slog.Logger
	stop   func() // ends the gauges

	ctx       context.Context //nolint:containedctx // of the goroutine that prepares the store
	cancel    context.CancelFunc
	once      sync.Once
	preparing sync.WaitGroup
}

// stores has the stores of the process. Caddy loads a new configuration before it unloads the old
// one, so a store that both of them name stays open.
var stores = caddy.NewUsagePool() //nolint:gochecknoglobals // the configurations of a process have nothing else in common

// use returns the store of s, which [leave] gives back.
func (s source) use(ctx context.Context, telemetry *lockotel.Telemetry) (*shared, error) {
	value, _, err := stores.LoadOrNew(s, func() (caddy.Destructor, error) {
		o, err := s.open(ctx)
		if err != nil {
			return nil, err
		}
		logger := slog.New(logHandler{})
		sh := &shared{opened: o, logger: logger}
		sh.locker = lock.New(o.store, lock.WithLogger(logger), lock.WithDetached(),
			lock.WithObserver(telemetry.Observe), lock.WithOrigin(lockotel.Origin))
		sh.stop = telemetry.Watch(sh.locker)
		sh.ctx, sh.cancel = context.WithCancel(context.WithoutCancel(ctx)) // it outlives this configuration
		return sh, nil
	})
	if err != nil {
		return nil, err
	}
	sh, ok := value.(*shared)
	if !ok { // another configuration failed to open it meanwhile
		return nil, errors.New("the store could not be opened: load the configuration again")
	}
	return sh, nil
}

func (s source) leave() error {
	_, err := stores.Delete(s)
	return err
}

// start contacts the server, the first time that it is called. If the server does not answer at the
// start of Caddy, the configuration is loaded all the same, because it may serve other sites: start
// then tries again in the background, and guarded requests get 503. In a reload, that is an error.
func (s *shared) start(reload bool) (err error) {
	if s.prepare == nil {
		return nil
	}
	s.once.Do(func() {
		if err = s.prepared(); err == nil || reload {
			return
		}
		s.notReady(err)
		err = nil
		s.preparing.Go(func() {
			ticker := time.NewTicker(prepareAgain)
			defer ticker.Stop()
			for {
				select {
				case <-s.ctx.Done():
					return
				case <-ticker.C:
				}
				if err := s.prepared(); err != nil {
					s.notReady(err)
					continue
				}
				s.logger.InfoContext(s.ctx, "the store is ready")
				return
			}
		})
	})
	return err
}

func (s *shared) prepared() error {
	ctx, cancel := context.WithTimeout(s.ctx, prepareTime)
	defer cancel()
	return s.prepare(ctx)
}

func (s *shared) notReady(err error) {
	if s.ctx.Err() == nil {
		s.logger.ErrorContext(s.ctx, "the store is not ready", slog.Any("error", err),
			slog.String("do", "Do what the error says. Guarded requests get 503 until then, and the store is tried again every 5 s."))
	}
}

// Destruct closes the store when no configuration names it any longer.
func (s *shared) Destruct() error {
	s.cancel()
	s.preparing.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), closeTime)
	defer cancel()
	err := s.locker.Close(ctx)
	s.stop()
	s.close()
	return err
}
