package semantics_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/lock"
)

var quiet = slog.New(slog.DiscardHandler)

// guard is a middleware, made for a process with its Locker.
type guard func(l *lock.Locker) func(http.Handler) http.Handler

// world is the environment of one row: two processes on one store, and a handler that counts its runs.
type world struct {
	row     *row
	guard   guard
	routes  routes
	base    lock.Store
	front   *front // before the store of the first process
	first   *process
	second  *process    // nil until it is asked for
	lease   *lock.Lease // of a worker
	open    []net.Conn
	effects atomic.Int64

	entered chan struct{} // a handler stops before its answer
	goOn    chan struct{} // and goes on
	over    chan struct{} // the row ends
	let     sync.Once
	arrived atomic.Int64 // requests that reached a process
	serving atomic.Int64 // and are not answered yet

	held     []chan result // of requests whose handler stopped
	waiters  []chan result // of requests that wait for them
	original *answer       // what a replay has to equal
}

type result struct {
	answer *answer
	err    error
}

// process is one server with one Locker.
type process struct {
	locker *lock.Locker
	server *httptest.Server
}

// routes mounts a guard on every path, and on one with a path value.
type routes func(guard func(http.Handler) http.Handler, h http.Handler) http.Handler

func stdlib(guard func(http.Handler) http.Handler, h http.Handler) http.Handler {
	mux := http.NewServeMux()
	guarded := guard(h)
	mux.Handle("/orders/{id}/pay", guarded)
	mux.Handle("/", guarded)
	return mux
}

func chiRouter(guard func(http.Handler) http.Handler, h http.Handler) http.Handler {
	r := chi.NewRouter()
	guarded := r.With(guard)
	guarded.Handle("/orders/{id}/pay", h)
	guarded.Handle("/*", h)
	return r
}

func newWorld(r *row, g guard, on routes, base lock.Store) *world {
	w := &world{
		row: r, guard: g, routes: on, base: base,
		entered: make(chan struct{}, 100), goOn: make(chan struct{}), over: make(chan struct{}),
	}
	store := base
	if r.faulty {
		w.front = &front{MortalStore: guardtest.MortalStore{Store: base}, brief: r.brief}
		store = w.front
	}
	var opts []lock.Option
	if r.shortBudget {
		opts = append(opts, lock.WithBudget(3*time.Second))
	}
	w.first = w.start(store, opts...)
	return w
}

func (w *world) start(store lock.Store, more ...lock.Option) *process {
	// On a busy machine the store is waited for.
	opts := append([]lock.Option{lock.WithLogger(quiet), lock.WithBudget(10 * time.Second)}, w.row.locker...)
	l := lock.New(store, append(opts, more...)...)
	handler := w.routes(w.guard(l), http.HandlerFunc(w.handle))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.serving.Add(1)
		defer w.serving.Add(-1)
		w.arrived.Add(1)
		handler.ServeHTTP(rw, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	return &process{l, server}
}

// to is the process that r goes to.
func (w *world) to(r *request) *process {
	if !r.second {
		return w.first
	}
	if w.second == nil {
		w.second = w.start(w.base)
	}
	return w.second
}

// context is for what the script itself asks the store.
func (w *world) context() context.Context { return context.Background() }

func (p *process) addr() string { return p.server.Listener.Addr().String() }

// close ends all of it, in good order.
func (w *world) close() error {
	w.letGo()
	close(w.over)
	if w.front != nil {
		w.front.mend()
	}
	for _, conn := range w.open {
		_ = conn.Close()
	}
	errs := []error{w.lease.Release(w.context())} // safe on nil
	for _, all := range [][]chan result{w.held, w.waiters} {
		for _, answered := range all {
			<-answered // bounded by the deadline of its connection
		}
	}
	for _, p := range []*process{w.first, w.second} {
		if p == nil {
			continue
		}
		p.server.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		errs = append(errs, p.locker.Close(ctx))
		cancel()
	}
	return errors.Join(errs...)
}

func (w *world) letGo() { w.let.Do(func() { close(w.goOn) }) }

// run is one call of the handler.
type run struct {
	http.ResponseWriter
	req   *http.Request
	n     int64 // which of them it is
	world *world
}

// handle counts an effect, stops where the request asks for it, and answers as the row's handler does.
func (w *world) handle(rw http.ResponseWriter, r *http.Request) {
	c := &run{ResponseWriter: rw, req: r, n: w.effects.Add(1), world: w}
	if w.row.early != nil {
		w.row.early(c)
	}
	if r.Header.Get("X-Hold") != "" {
		w.entered <- struct{}{}
		<-w.goOn
	}
	if w.row.handler != nil {
		w.row.handler(c)
		return
	}
	order(c)
}

// order is the handler of a row, unless the row sets another.
func order(c *run) {
	c.Header().Set("Content-Type", "application/json")
	c.Header().Set("Location", fmt.Sprintf("/orders/%d", c.n))
	c.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(c, `{"order":%d}`, c.n)
}

// patience returns the longest time for which the row waits for an event.
func (w *world) patience() time.Duration {
	if w.row.impatient {
		return 200 * time.Millisecond
	}
	return patience
}

// await polls for what has to come.
func (w *world) await(what string, cond func() bool) error {
	for end := time.Now().Add(w.patience()); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("waited for nothing: %s", what)
		}
	}
	return nil
}

// goexit ends a handler's goroutine, as a failed check of a test would.
func goexit() { runtime.Goexit() }

// gone waits until the client of c has gone.
func (c *run) gone() {
	select {
	case <-c.req.Context().Done():
	case <-c.world.over:
	}
}

// then is an event in addition to the requests.
func then(words string, f func(w *world) error) step {
	return step{sent: words, run: func(w *world, _ *step) error { return f(w) }}
}

// goesOn lets the handlers go on, and waits until all requests are served.
func goesOn() step {
	return then("its handler ends", func(w *world) error {
		w.letGo()
		return w.await("all are served", func() bool { return w.serving.Load() == 0 })
	})
}

// handled waits until a handler has begun.
func handled() step {
	return then("its handler runs", func(w *world) error {
		return w.await("the handler runs", func() bool { return w.effects.Load() > 0 })
	})
}

// dies takes the first process away from the store, and lets its lease end.
func dies() step {
	return then("its process dies, and its lease ends", func(w *world) error {
		w.front.Dead.Store(true)
		return w.lapse()
	})
}

// vanishes takes the first process away from the store, while its lease runs.
func vanishes() step { return offline("its process dies") }

// down cuts the first process off from the store.
func down() step { return offline("the store goes down") }

func offline(words string) step {
	return then(words, func(w *world) error {
		w.front.Dead.Store(true)
		return nil
	})
}

// up ends that.
func up() step {
	return then("the store is back", func(w *world) error {
		w.front.mend()
		return nil
	})
}

// forgotten removes the entry that was claimed last, as an operator would.
func forgotten() step {
	return then("an operator removes its entry", func(w *world) error {
		inspector, ok := w.base.(lock.Inspector)
		if !ok {
			return fmt.Errorf("%T is no lock.Inspector", w.base)
		}
		key, token := w.front.claimed()
		removed, err := inspector.Forget(w.context(), key, token)
		if err == nil && !removed {
			err = errors.New("there was nothing to remove")
		}
		return err
	})
}

// lapse waits until the lease of the last claim is over at the store.
func (w *world) lapse() error {
	key, _ := w.front.claimed()
	return w.await("the lease ends", func() bool {
		e, err := w.base.Get(w.context(), key)
		return err == nil && e.State != lock.Held
	})
}

// front is a store as one process sees it, whose link can fail.
type front struct {
	guardtest.MortalStore
	brief  bool        // claims get a lease of a millisecond, so that no row waits for the end of one
	silent atomic.Bool // settles are applied, and their answers lost
	full   atomic.Bool // claims find no room

	mu    sync.Mutex
	key   string // of the last claim
	token string
}

var errDead = fmt.Errorf("%w: the link is down", lock.ErrNotApplied)

func (f *front) mend() {
	f.Dead.Store(false)
	f.silent.Store(false)
	f.full.Store(false)
}

func (f *front) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	switch {
	case f.Dead.Load():
		return lock.Entry{}, errDead
	case f.full.Load():
		return lock.Entry{}, lock.ErrFull
	case f.brief:
		c.Lease = time.Millisecond
	}
	f.mu.Lock()
	f.key, f.token = key, c.Token
	f.mu.Unlock()
	return f.Store.Claim(ctx, key, c)
}

func (f *front) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	ok, err := f.MortalStore.Settle(ctx, key, c, receipt, keep)
	if err == nil && f.silent.Load() {
		return false, errors.New("the answer was lost")
	}
	return ok, err
}

// claimed is the last claim that went through.
func (f *front) claimed() (key, token string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.key, f.token
}
