package middleware_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// laterJourney is one order that is accepted with 202, by one of three processes, and finished by
// a worker that is killed again and again. Clients repeat the request in all processes until they
// have the final answer.
type laterJourney struct {
	rng    *rand.Rand
	forget bool // the worker does not look for the order of its job first

	mu      sync.Mutex
	queue   []string          // tickets, until their job is done
	orders  map[string]string // by ticket
	effects int
	final   time.Time       // when the first client had the final answer
	answers map[string]bool // without the refusals of repeats that came too early
	wrong   []string        // answers that no client may get
}

func (x *laterJourney) accept(w http.ResponseWriter, r *http.Request) {
	ticket, err := latch.Later(r.Context())
	if err == nil {
		err = lock.Commit(r.Context()) // from here on, a second run could enqueue a second job
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	x.mu.Lock()
	x.queue = append(x.queue, ticket)
	x.mu.Unlock()
	time.Sleep(30 * time.Millisecond)
	w.Header().Set("Location", "/jobs/7")
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "accepted")
}

// ask repeats the request until the answer is final, and some times more.
func (x *laterJourney) ask(process http.Handler, pause time.Duration) {
	for began, more := time.Now(), 10; more > 0 && time.Since(began) < 5*time.Minute; time.Sleep(pause) {
		asked := time.Now()
		w := serve(process, keyed("k"))
		x.mu.Lock()
		switch w.Code {
		case http.StatusAccepted, http.StatusCreated:
			x.answers[fmt.Sprint(w.Code, " ", w.Body)] = true
			if w.Code == http.StatusAccepted && !x.final.IsZero() && asked.After(x.final) {
				x.wrong = append(x.wrong, "202 after the final answer")
			}
			if w.Code == http.StatusCreated {
				more--
				if x.final.IsZero() {
					x.final = time.Now()
				}
			}
		case http.StatusConflict, http.StatusServiceUnavailable: // it is still in progress, or the store is silent
		default:
			x.wrong = append(x.wrong, fmt.Sprintf("%d %s", w.Code, w.Body))
		}
		x.mu.Unlock()
	}
}

var errKilled = errors.New("the worker was killed")

// work does the job at the head of the queue once, and is killed at a random step of it.
func (x *laterJourney) work(t *testing.T, network *line, kill int) error {
	t.Helper()
	x.mu.Lock()
	var ticket string
	if len(x.queue) > 0 {
		ticket = x.queue[0]
	}
	x.mu.Unlock()
	if ticket == "" || kill == 0 {
		return errKilled
	}
	x.mu.Lock()
	if x.orders[ticket] == "" || x.forget {
		x.effects++
		x.orders[ticket] = fmt.Sprintf(`{"order":%d}`, x.effects)
	}
	order := x.orders[ticket]
	x.mu.Unlock()
	if kill == 1 {
		return errKilled
	}
	l := lock.New(network, lock.WithLogger(quiet), lock.WithKeep(laterKeep))
	defer func() { _ = l.Close(t.Context()) }()
	err := latch.Finish(t.Context(), l, ticket, latch.Answer{Status: http.StatusCreated, Body: []byte(order)})
	if kill == 2 || err != nil && !errors.Is(err, lock.ErrSettled) {
		return errors.Join(err, errKilled) // Finish may have been applied, and the job is still in the queue
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.queue = x.queue[1:]
	return nil
}

// play returns the violations.
func (x *laterJourney) play(t *testing.T) {
	t.Helper()
	x.orders, x.answers = make(map[string]string), make(map[string]bool)
	synctest.Test(t, func(t *testing.T) {
		network := newLine()
		var lockers []*lock.Locker
		var clients sync.WaitGroup
		for range 3 {
			l := lock.New(network, lock.WithLogger(quiet), lock.WithKeep(laterKeep))
			lockers = append(lockers, l)
			process := once(l)(http.HandlerFunc(x.accept))
			for range 3 {
				pause := time.Duration(20+x.rng.IntN(100)) * time.Millisecond
				clients.Go(func() { x.ask(process, pause) })
			}
		}
		for restart := 0; ; restart++ {
			time.Sleep(time.Duration(x.rng.IntN(1000)) * time.Millisecond)
			faults := []meets{nil, loseReply, loseRequest, hangReply, hangRequest, refuse}
			if f := faults[x.rng.IntN(len(faults))]; f != nil {
				network.set(f, x.rng.IntN(6), "amend", "settle", "get")
			}
			kill := x.rng.IntN(4)
			if restart < 3 {
				kill = restart
			}
			if x.work(t, network, kill) == nil {
				break
			}
		}
		network.set(nil, 0)
		clients.Wait()
		for _, l := range lockers {
			require.NoError(t, l.Close(t.Context()))
		}
	})
}

// For any number of killed workers and lost replies, there is one effect, and there are two answers
// in all: the 202, and then the final one.
func TestJourneyOfALaterAnswer(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		x := &laterJourney{rng: rand.New(rand.NewPCG(seed, 4))}
		x.play(t)
		require.Empty(t, x.wrong, "seed %d", seed)
		require.Equal(t, 1, x.effects, "seed %d", seed)
		require.Equal(t, map[string]bool{"202 accepted": true, `201 {"order":1}`: true}, x.answers, "seed %d", seed)
		require.Empty(t, x.queue)
	}
}

// The twin: a worker that does not look for the order of its job makes a second one.
func TestJourneyOfALaterAnswerFindsASecondEffect(t *testing.T) {
	t.Parallel()
	x := &laterJourney{rng: rand.New(rand.NewPCG(1, 4)), forget: true}
	x.play(t)
	require.Greater(t, x.effects, 1)
}
