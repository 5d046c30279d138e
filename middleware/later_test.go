package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/internal/tickettext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
	latch "github.com/httplatch/httplatch/middleware"
)

const laterKeep = time.Hour

// line is a memory store behind a network. Some of its calls have a fault.
type line struct {
	*memstore.Store

	mu     sync.Mutex
	fault  faketx.Fault
	left   int // of the faults; below 0: no end
	calls  []string
	counts map[string]int
}

func newLine() *line { return &line{Store: memstore.New(), counts: make(map[string]int)} }

func (w *line) Describe() lock.Description { return lock.Description{MaxLag: time.Second} }

// set has the next n of calls meet f, all if n is below 0.
func (w *line) set(f faketx.Fault, n int, calls ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.left, w.calls = f, n, calls
}

func (w *line) count(call string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[call]
}

// pass makes a call, which has the next fault if that is for it.
func pass[T any](ctx context.Context, w *line, call string, apply func() (T, error)) (got T, err error) {
	w.mu.Lock()
	w.counts[call]++
	f := w.fault
	if w.left == 0 || !slices.Contains(w.calls, call) {
		f = func(_ context.Context, apply func() error) error { return apply() }
	} else {
		w.left--
	}
	w.mu.Unlock()
	err = f(ctx, func() (err error) { got, err = apply(); return err })
	return got, err
}

func (w *line) Amend(ctx context.Context, key, token string, from, to []byte) (bool, error) {
	return pass(ctx, w, "amend", func() (bool, error) { return w.Store.Amend(ctx, key, token, from, to) })
}

func (w *line) Get(ctx context.Context, key string) (lock.Entry, error) {
	e, err := pass(ctx, w, "get", func() (lock.Entry, error) { return w.Store.Get(ctx, key) })
	e.Key = key // a store may do that
	return e, err
}

func (w *line) Settle(ctx context.Context, key string, c lock.Claim, receipt []byte, keep time.Duration) (bool, error) {
	return pass(ctx, w, "settle", func() (bool, error) { return w.Store.Settle(ctx, key, c, receipt, keep) })
}

func (w *line) Release(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return pass(ctx, w, "release", func() (bool, error) { return w.Store.Release(ctx, key, c) })
}

func (w *line) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	return pass(ctx, w, "renew", func() (bool, error) { return w.Store.Renew(ctx, key, c) })
}

// desk accepts orders with 202, and hands out their tickets.
type desk struct {
	effects

	locker  *lock.Locker
	http    http.Handler
	tickets []string
}

// laterOver runs a test in virtual time over each kind of store, with faults where there is a network.
func laterOver(t *testing.T, run func(t *testing.T, d *desk, network *line)) {
	t.Helper()
	for name, open := range map[string]func(network *line) lock.Store{
		"memory": func(network *line) lock.Store { return network.Store },
		"remote": func(network *line) lock.Store { return network },
		"sealed": func(network *line) lock.Store { return sealed.New(network, newSeal(t, strings.Repeat("0", 32))) },
	} {
		inBubble(t, name, func(t *testing.T) {
			network := newLine()
			d := &desk{locker: lock.New(open(network), lock.WithLogger(quiet), lock.WithKeep(laterKeep))}
			d.http = once(d.locker)(d.then(d.accept))
			run(t, d, network)
			network.set(nil, 0)
			require.NoError(t, d.locker.Close(t.Context()))
		})
	}
}

func (d *desk) ticket(t *testing.T, r *http.Request) {
	t.Helper()
	d.tickets = append(d.tickets, must.Get(latch.Later(r.Context()))(t))
}

func (d *desk) accept(w http.ResponseWriter, r *http.Request) {
	ticket, err := latch.Later(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	d.tickets = append(d.tickets, ticket)
	w.Header().Set("Location", "/jobs/7")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "accepted")
}

func (d *desk) finish(ctx context.Context, answer latch.Answer) error {
	return latch.Finish(ctx, d.locker, d.tickets[len(d.tickets)-1], answer)
}

func requireAccepted(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, http.StatusAccepted, w.Code, w.Body.String())
	require.Equal(t, "/jobs/7", w.Header().Get("Location"))
	require.Equal(t, "accepted", w.Body.String())
}

var finalAnswer = latch.Answer{
	Status: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}, "x-part": {"1", "2"}}, Body: []byte(`{"order":7}`),
}

func requireFinal(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
	require.Equal(t, http.Header{
		"Content-Type": {"application/json"}, "X-Part": {"1", "2"}, "Idempotent-Replayed": {"true"},
	}, w.Header())
	require.Equal(t, `{"order":7}`, w.Body.String())
}

// Every request gets the 202 until the worker is done, and then the final answer.
func TestFinalAnswerComesLater(t *testing.T) {
	t.Parallel()
	laterOver(t, func(t *testing.T, d *desk, _ *line) {
		requireAccepted(t, serve(d.http, keyed("k")))
		require.LessOrEqual(t, len(d.tickets[0]), 512)
		time.Sleep(10 * time.Minute)
		requireAccepted(t, serve(d.http, keyed("k")))
		require.NoError(t, d.finish(t.Context(), finalAnswer))
		for range 3 {
			requireFinal(t, serve(d.http, keyed("k")))
			require.NoError(t, d.finish(t.Context(), finalAnswer), "the same answer")
			require.ErrorIs(t, d.finish(t.Context(), latch.Answer{Status: 422}), lock.ErrSettled)
		}
		d.require(t, 1)

		time.Sleep(laterKeep - 10*time.Minute)
		require.ErrorIs(t, d.finish(t.Context(), finalAnswer), lock.ErrLost, "the keep counts from the 202")
		requireAccepted(t, serve(d.http, keyed("k")))
		require.NotEqual(t, d.tickets[0], d.tickets[1])
		require.ErrorIs(t, latch.Finish(t.Context(), d.locker, d.tickets[0], finalAnswer), lock.ErrLost, "the record of another run")
		d.require(t, 2)
	})
}

// A worker can be done before the handler is: Finish waits for the 202, and is refused if that takes too long.
func TestFinishBeforeTheHandlerHasReturned(t *testing.T) {
	t.Parallel()
	laterOver(t, func(t *testing.T, d *desk, _ *line) {
		for slow, pause := range map[bool]time.Duration{false: 100 * time.Millisecond, true: 2 * time.Second} {
			var worker sync.WaitGroup
			h := once(d.locker)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				d.accept(w, r)
				worker.Go(func() {
					err := d.finish(context.WithoutCancel(r.Context()), finalAnswer)
					require.Equal(t, slow, errors.Is(err, lock.ErrHeld), "%v", err)
					if refused, is := errors.AsType[*lock.RefusedError](err); is {
						require.Empty(t, refused.Entry.Key, "the name of a record is not the key that the caller gave")
					}
					require.Equal(t, slow, err != nil)
				})
				time.Sleep(pause)
			}))
			key := fmt.Sprint(slow)
			requireAccepted(t, serve(h, keyed(key)))
			worker.Wait()
			require.NoError(t, d.finish(t.Context(), finalAnswer))
			requireFinal(t, serve(h, keyed(key)))
		}
	})
}

// A request that has failed has no record, and its ticket is not valid.
func TestTicketOfARequestThatFails(t *testing.T) {
	t.Parallel()
	laterOver(t, func(t *testing.T, d *desk, _ *line) {
		fails := once(d.locker)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d.ticket(t, r)
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		require.Equal(t, 503, serve(fails, keyed("k")).Code)
		requireNoRecord(t, d.finish(t.Context(), finalAnswer))
		requireAccepted(t, serve(d.http, keyed("k")))
		require.ErrorIs(t, latch.Finish(t.Context(), d.locker, d.tickets[0], finalAnswer), lock.ErrLost, "it was run again")
		require.NoError(t, d.finish(t.Context(), finalAnswer))
		requireFinal(t, serve(d.http, keyed("k")))
	})
}

// A lost reply of the amend is asked again, in the same Finish or the next. Repeats get the 202
// or the final answer, and never the 202 after it.
func TestLostReplyOfFinish(t *testing.T) {
	t.Parallel()
	laterOver(t, func(t *testing.T, d *desk, network *line) {
		for name, f := range map[string]faketx.Fault{
			"reply": faketx.LoseReply, "request": faketx.LoseRequest, "silence": faketx.HangReply, "not-applied": faketx.Hang, "refused": faketx.Refuse(nil),
		} {
			requireAccepted(t, serve(d.http, keyed(name)))
			network.set(f, 1, "amend")
			require.NoError(t, d.finish(t.Context(), finalAnswer), name)
			network.set(nil, 0)
			requireFinal(t, serve(d.http, keyed(name)))

			name += "-each-time"
			requireAccepted(t, serve(d.http, keyed(name)))
			network.set(f, -1, "amend")
			err := d.finish(t.Context(), finalAnswer)
			network.set(nil, 0)
			if err != nil { // a store in this process has no network, and a sealed one reads before each amend
				require.ErrorIs(t, err, lock.ErrUnavailable, name)
			}
			require.NoError(t, d.finish(t.Context(), finalAnswer), name)
			requireFinal(t, serve(d.http, keyed(name)))
			require.ErrorIs(t, d.finish(t.Context(), latch.Answer{Status: 500}), lock.ErrSettled)
		}
		network.set(faketx.HangReply, -1, "get")
		if err := d.finish(t.Context(), finalAnswer); err != nil {
			require.ErrorIs(t, err, lock.ErrUnavailable)
			require.NotErrorIs(t, err, lock.ErrUnknown, "it has only read")
		}
	})
}

// The final answer also replaces the record of an answer that was too long to be kept, or of a handler that failed after its
// effect. Once an answer has begun to leave, Later fails, in place of a ticket that could never be finished.
func TestFinishAfterAnAnswerThatIsNotKept(t *testing.T) {
	t.Parallel()
	laterOver(t, func(t *testing.T, d *desk, _ *line) {
		for name, answer := range map[string]http.HandlerFunc{
			"long":     acts(status(http.StatusAccepted), write(strings.Repeat("a", 2<<20))),
			"streamed": acts(status(http.StatusAccepted), flush),
			"failed": func(w http.ResponseWriter, r *http.Request) {
				require.NoError(t, lock.Commit(r.Context()))
				w.WriteHeader(http.StatusInternalServerError)
			},
		} {
			h := once(d.locker)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				d.ticket(t, r)
				if answer(w, r); name != "failed" {
					_, err := latch.Later(r.Context())
					require.ErrorContains(t, err, "has begun to leave")
				}
			}))
			serve(h, keyed(name))
			switch again := serve(h, keyed(name)); name {
			case "failed":
				require.Equal(t, http.StatusInternalServerError, again.Code)
			case "streamed":
				require.Equal(t, http.StatusAccepted, again.Code)
			default:
				requireProblem(t, wantProblem{status: 409, kind: "result-not-replayable"}, again)
			}
			require.NoError(t, d.finish(t.Context(), finalAnswer), name)
			requireFinal(t, serve(h, keyed(name)))
			require.ErrorIs(t, d.finish(t.Context(), latch.Answer{Status: 500}), lock.ErrSettled)
		}
	})
}

// The process of the handler has vanished with the ticket in the queue, and before its 202 was
// recorded. The worker's answer is the outcome.
func TestFinishAfterACrash(t *testing.T) {
	t.Parallel()
	laterOver(t, func(t *testing.T, d *desk, network *line) {
		crashing := lock.New(network, lock.WithLogger(quiet), lock.WithKeep(laterKeep))
		if _, direct := d.locker.Store().(*sealed.Store); direct {
			t.Skip("the claims of the two processes are sealed by one")
		}
		h := once(crashing)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d.accept(w, r)
			network.set(faketx.Refuse(nil), -1, "settle", "release", "renew")
		}))
		requireAccepted(t, serve(h, keyed("k")))
		_ = crashing.Close(canceled(t))
		time.Sleep(5 * time.Second)
		network.set(nil, 0)
		time.Sleep(time.Minute)
		requireProblem(t, wantProblem{status: 409, kind: "outcome-unknown"}, serve(d.http, keyed("k")))
		require.NoError(t, d.finish(t.Context(), finalAnswer))
		requireFinal(t, serve(d.http, keyed("k")))
		require.ErrorIs(t, d.finish(t.Context(), latch.Answer{Status: 500}), lock.ErrSettled)
	})
}

// Tickets and answers that no record can have are separate errors.
func TestHostileFinish(t *testing.T) {
	t.Parallel()
	laterOver(t, func(t *testing.T, d *desk, network *line) {
		requireAccepted(t, serve(d.http, keyed("k")))
		good := d.tickets[0]
		ofLock := forge(tickettext.Lock, "user=42")
		for name, ticket := range map[string]string{
			"none": "", "cut": good[1:], "altered": good[:9] + "AAAA" + good[13:], "a megabyte": strings.Repeat("A", 1<<20), "of a lock": ofLock,
		} {
			err := latch.Finish(t.Context(), d.locker, ticket, finalAnswer)
			require.ErrorContains(t, err, "no ticket of Later", name)
			require.Less(t, len(err.Error()), 200)
		}
		requireNoRecord(t, latch.Finish(t.Context(), d.locker, forge(tickettext.Answer, "user=42"), finalAnswer))
		_, err := d.locker.Resume(t.Context(), good)
		require.ErrorContains(t, err, "something else")
		amends := network.count("amend")
		for name, answer := range map[string]latch.Answer{
			"none": {}, "1xx": {Status: 102}, "four digits": {Status: 1000}, "204 with a body": {Status: 204, Body: []byte("x")},
			"a cookie": {Status: 200, Header: http.Header{"set-cookie": {"a=b"}}}, "no token": {Status: 200, Header: http.Header{"a b": {"c"}}},
		} {
			require.ErrorContains(t, d.finish(t.Context(), answer), "Finish", name)
		}
		require.Equal(t, amends, network.count("amend"))
		requireAccepted(t, serve(d.http, keyed("k")))
		require.ErrorIs(t, d.finish(canceled(t), finalAnswer), context.Canceled)
		require.NoError(t, d.finish(t.Context(), latch.Answer{Status: 204}))
		require.Equal(t, 204, serve(d.http, keyed("k")).Code)
	})
}

// requireNoRecord checks the error of a ticket whose record is missing before its keep is over.
func requireNoRecord(t *testing.T, err error) {
	t.Helper()
	require.ErrorContains(t, err, "there is no record of the ticket, and the time of the ticket is not over")
	for _, final := range []error{lock.ErrLost, lock.ErrSettled, lock.ErrUnavailable} {
		require.NotErrorIs(t, err, final)
	}
}

// A worker without the seal of the guard's store, of another store, or with another prefix, gets
// errors for which no worker ends its job: the worker with the right store finishes it. Before, the
// first of them got ErrSettled, as if there were another final answer, and the others got ErrLost.
func TestFinishInTheWrongPlace(t *testing.T) {
	parallel.Bubble(t, func(t *testing.T) {
		seal, otherSeal := newSeal(t, "one secret of 32 bytes, or more."), newSeal(t, "another secret of 32 bytes here.")
		plain := memstore.New()
		open := func(s lock.Store) *lock.Locker {
			l := lock.New(s, lock.WithLogger(quiet), lock.WithKeep(laterKeep))
			t.Cleanup(func() { end(l) })
			return l
		}
		right := open(sealed.New(plain, seal))
		d := &desk{locker: right}
		h := once(right)(http.HandlerFunc(d.accept))
		requireAccepted(t, serve(h, keyed("k")))

		wrong := map[string]*lock.Locker{
			"cannot be read":                    open(plain),
			"no AEAD that sealed.New was given": open(sealed.New(plain, otherSeal)),
			"there is no record of the ticket":  open(sealed.New(memstore.New(), seal)),
		}
		for text, l := range wrong {
			err := latch.Finish(t.Context(), l, d.tickets[0], finalAnswer)
			require.ErrorContains(t, err, text)
			require.NotErrorIs(t, err, lock.ErrSettled)
			require.NotErrorIs(t, err, lock.ErrLost)
		}
		requireAccepted(t, serve(h, keyed("k")))
		require.NoError(t, d.finish(t.Context(), finalAnswer))
		requireFinal(t, serve(h, keyed("k")))
		for text, l := range wrong {
			err := latch.Finish(t.Context(), l, d.tickets[0], finalAnswer)
			require.ErrorContains(t, err, text, "also when it was finished")
		}
		time.Sleep(laterKeep)
		for _, l := range wrong {
			require.ErrorIs(t, latch.Finish(t.Context(), l, d.tickets[0], finalAnswer), lock.ErrLost)
		}
	})
}

// Later has a record to amend, or is an error.
func TestLaterOutside(t *testing.T) {
	t.Parallel()
	_, err := latch.Later(t.Context())
	require.ErrorContains(t, err, "outside")

	l := lock.New(memstore.New(), lock.WithLogger(quiet))
	var late context.Context
	serve(once(l)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { late = r.Context() })), keyed("k"))
	_, err = latch.Later(late)
	require.ErrorContains(t, err, "outside")

	plain := lock.New(struct{ lock.Store }{memstore.New()}, lock.WithLogger(quiet))
	t.Cleanup(func() { end(plain) })
	serve(once(plain)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err = latch.Later(r.Context())
	})), keyed("k"))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	ticket := forge(tickettext.Answer, "once:1")
	require.ErrorIs(t, latch.Finish(t.Context(), plain, ticket, finalAnswer), errors.ErrUnsupported)
	end(l)
	require.ErrorIs(t, latch.Finish(t.Context(), l, ticket, finalAnswer), lock.ErrClosed)
}

// A store without room for the final answer keeps the 202.
func TestFinalAnswerThatDoesNotFit(t *testing.T) {
	t.Parallel()
	l := lock.New(memstore.New(memstore.WithLimits(100, 64<<10)), lock.WithLogger(quiet))
	t.Cleanup(func() { end(l) })
	d := &desk{locker: l}
	h := once(l)(http.HandlerFunc(d.accept))
	requireAccepted(t, serve(h, keyed("k")))
	require.ErrorIs(t, d.finish(t.Context(), latch.Answer{Status: 200, Body: make([]byte, 1<<20)}), lock.ErrFull)
	requireAccepted(t, serve(h, keyed("k")))
	require.NoError(t, d.finish(t.Context(), finalAnswer))
	requireFinal(t, serve(h, keyed("k")))
}

// forge returns a ticket whose token no entry has.
func forge(kind tickettext.Kind, name string) string {
	t := tickettext.Ticket{Name: name, Token: "token", Until: time.Now().Add(time.Hour)}
	text, _ := t.Write(kind)
	return text
}
