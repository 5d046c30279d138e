package page

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
)

var user, guard, lose = keyfunc.Form("user"), keyfunc.Form("guard"), keyfunc.Optional(keyfunc.Form("lose"))

// Stage takes the orders of the page.
type Stage struct {
	Locker  *lock.Locker // for the guards of the library, over a store that loses replies
	store   lock.Store
	budget  time.Duration
	running sync.Map // the tokens of orders behind the naive lock
	mu      sync.Mutex
	placed  map[string][]string // the orders of each burst of clicks
}

// NewStage returns a stage over the store of the desk. The naive lock waits for it for budget.
func NewStage(store lock.Store, budget time.Duration, opts ...lock.Option) *Stage {
	store = lossyStore{store}
	return &Stage{Locker: lock.New(store, opts...), store: store, budget: budget, placed: map[string][]string{}}
}

// Try is POST /try: the order of a form, which place places, behind the guard that the form names.
func (s *Stage) Try(once, onePerUser func(http.Handler) http.Handler, place http.Handler) http.Handler {
	order := s.fromForm(place)
	guards := map[string]http.Handler{
		"none": order, "naive": s.naive(order), "lock": onePerUser(order), "idempotent": once(order), "both": once(onePerUser(order)),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _ := guard(r)
		guarded, ok := guards[name]
		if _, err := user(r); err != nil || !ok {
			refuse(w, r, http.StatusBadRequest, "The form names no customer, or no guard.", 0)
			return
		}
		lost, _ := lose(r)
		log := &claimLog{ResponseWriter: w, lose: lost != ""}
		guarded.ServeHTTP(log, r.WithContext(context.WithValue(r.Context(), claimsKey{}, log)))
	})
}

// fromForm has place place the order of a form, as one of a client of the API.
func (s *Stage) fromForm(place http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		quantity, _ := strconv.Atoi(r.PostFormValue("quantity")) // 0 is refused, too
		body, _ := json.Marshal(map[string]any{"sku": r.PostFormValue("sku"), "quantity": quantity})
		order := r.Clone(r.Context())
		order.Body = io.NopCloser(bytes.NewReader(body))
		order.Header.Set("X-User-ID", r.PostFormValue("user"))
		order.Header.Set("X-Work", r.PostFormValue("work"))
		place.ServeHTTP(w, order)
		id, placed := strings.CutPrefix(w.Header().Get("Location"), "/orders/")
		s.mu.Lock()
		defer s.mu.Unlock()
		if burst := r.Header.Get("X-Burst"); placed && burst != "" && len(burst) <= 64 && len(s.placed) < 4096 {
			s.placed[burst] = append(s.placed[burst], id)
		}
	})
}

// State is GET /try?user=U&burst=B: for how long the naive lock keeps a user out, and which orders
// a burst of clicks has placed. The page counts these, since an answer can be lost.
func (s *Stage) State(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	placed := s.placed[r.FormValue("burst")]
	s.mu.Unlock()
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	left := s.Lockout(r.Context(), r.FormValue("user"))
	_ = json.NewEncoder(w).Encode(map[string]any{"left_ms": left.Milliseconds(), "of_ms": naiveExpiry.Milliseconds(), "placed": placed})
}

// naiveExpiry has to be longer than the slowest order, since nothing renews the lock: in the incident, two hours.
const naiveExpiry = 2 * time.Minute

// naive is the lock of the incident, here to be compared, and never to be copied. It is right as
// long as every reply arrives.
func (s *Stage) naive(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		customer, _ := user(r) // Try has refused a form without one
		key, token := lock.Key("naive", customer), rand.Text()
		s.running.Store(token, nil)
		defer s.running.Delete(token)
		ctx, cancel := context.WithTimeout(r.Context(), s.budget)
		defer cancel()
		found, err := s.store.Claim(ctx, key, lock.Claim{Token: token, Attempt: 1, Lease: naiveExpiry})
		if err != nil {
			// The mistake: no answer is read as "not taken". So the key is not released if it was taken.
			refuse(w, r, http.StatusServiceUnavailable, "The lock could not be taken. Please try again.", time.Second)
			return
		}
		if found.Token != token {
			refuse(w, r, http.StatusConflict, "Your order is already being processed.", s.Lockout(r.Context(), customer))
			return
		}
		defer func() { _, _ = s.store.Release(context.WithoutCancel(r.Context()), key, lock.Claim{Token: token}) }()
		next.ServeHTTP(w, r)
	})
}

// Lockout returns how long the naive lock keeps a customer out while no order of this process runs.
func (s *Stage) Lockout(ctx context.Context, customer string) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	e, _ := s.store.Get(ctx, lock.Key("naive", customer)) // no lockout is shown if there is no answer
	if _, running := s.running.Load(e.Token); running {
		return 0
	}
	return e.Left
}

// lossyStore is a store behind a network that loses the reply to a claim if the request asks for
// it: the incident. The claim is applied, and its caller waits until its budget is over.
type lossyStore struct{ lock.Store }

// Claim is part of [lock.Store].
func (s lossyStore) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if log, ok := ctx.Value(claimsKey{}).(*claimLog); ok && log.note(err, e.State == lock.Held && e.Token == c.Token) {
		<-ctx.Done()
		return lock.Entry{}, errors.Join(errors.New("the reply to a claim was lost, as asked for"), ctx.Err())
	}
	return e, err
}

// Begin is part of [lock.Transactor], which the store below is unless Describe says no.
func (s lossyStore) Begin(ctx context.Context, key, token string) (context.Context, lock.Transaction, error) {
	return s.Store.(lock.Transactor).Begin(ctx, key, token) //nolint:errcheck,forcetypeassert // the Locker has asked Describe
}

// Describe is the description of the store below, except Local, since calls wait for the lost reply.
func (s lossyStore) Describe() lock.Description {
	about := lock.Describe(s.Store)
	about.Local = false
	return about
}

// claimLog adds to an answer what became of the claims of its request, in X-Claims.
type claimLog struct {
	http.ResponseWriter
	mu   sync.Mutex
	lose bool // the reply to the next claim
	all  []string
}

type claimsKey struct{}

// note notes the result of a claim, and returns whether its reply is lost.
func (l *claimLog) note(err error, granted bool) (lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost, l.lose = l.lose, false
	result := "refused"
	switch {
	case lost && granted:
		result = "lost"
	case lost:
		result = "unheard"
	case err != nil:
		result = "failed"
	case granted:
		result = "granted"
	}
	l.all = append(l.all, result)
	return lost
}

// WriteHeader is part of [http.ResponseWriter].
func (l *claimLog) WriteHeader(status int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) > 0 {
		l.Header().Set("X-Claims", strings.Join(l.all, ", "))
	}
	l.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (l *claimLog) Unwrap() http.ResponseWriter { return l.ResponseWriter }
