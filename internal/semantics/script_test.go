package semantics_test

import (
	"fmt"
	"net/http"
	"strings"
)

// step is one line of a row: what is done, and what has to come of it.
type step struct {
	sent  string // in words, unless it is a request
	req   *request
	run   func(w *world, s *step) error
	wants []want
}

// want is one thing that an answer has to have.
type want struct {
	words string
	check func(w *world, a *answer) error
}

// words are the first two cells of a step; first says whether no request went before it.
func (s *step) words(first bool) (sent, got string) {
	sent = s.sent
	if s.req != nil {
		begin := "the same"
		if first {
			begin = "a request"
		}
		sent = strings.Join(append([]string{begin}, s.req.words...), " ") + s.sent
	}
	all := make([]string, 0, len(s.wants))
	for _, w := range s.wants {
		if w.words != "" {
			all = append(all, w.words)
		}
	}
	return sent, strings.Join(all, ", ")
}

func (s *step) check(w *world, res result) error {
	if res.err != nil {
		if len(s.wants) == 1 && s.wants[0].check == nil {
			return nil
		}
		return res.err
	}
	for _, want := range s.wants {
		if want.check == nil {
			return fmt.Errorf("%d %q; want no answer", res.answer.status, res.answer.body)
		}
		if err := want.check(w, res.answer); err != nil {
			return fmt.Errorf("%w, in: %d %v %q", err, res.answer.status, res.answer.header, res.answer.body)
		}
	}
	return nil
}

// gets sends r and checks its answer.
func (r request) gets(wants ...want) step {
	return step{req: &r, wants: wants, run: func(w *world, s *step) error {
		a, err := send(s.req, w.to(s.req).addr(), w.patience())
		return s.check(w, result{a, err})
	}}
}

// comes sends r until its answer meets wants.
func (r request) comes(wants ...want) step {
	return step{req: &r, sent: ", in time", wants: wants, run: func(w *world, s *step) error {
		var last error
		if err := w.await("the answer", func() bool {
			a, err := send(s.req, w.to(s.req).addr(), w.patience())
			last = s.check(w, result{a, err})
			return last == nil
		}); err != nil {
			return last
		}
		return nil
	}}
}

// begins sends r, whose handler stops before it answers.
func (r request) begins() step {
	r.held = true
	return step{req: &r, sent: ", which runs", run: func(w *world, s *step) error {
		w.held = append(w.held, w.background(s.req))
		return w.enter()
	}}
}

// enter waits until a handler has stopped.
func (w *world) enter() error {
	return w.await("the handler runs", func() bool {
		select {
		case <-w.entered:
			return true
		default:
			return false
		}
	})
}

func (w *world) background(r *request) chan result {
	answered := make(chan result, 1)
	addr, patience := w.to(r).addr(), w.patience()
	go func() {
		defer close(answered)
		a, err := send(r, addr, patience)
		answered <- result{a, err}
	}()
	return answered
}

// wait sends r n times, which have to queue for the answer of one that runs.
func (r request) wait(n int) step {
	sent := ""
	if n > 1 {
		sent = fmt.Sprintf(", %d times", n)
	}
	return step{req: &r, sent: sent, wants: []want{{"waits", nil}}, run: func(w *world, s *step) error {
		for range n {
			w.waiters = append(w.waiters, w.background(s.req))
		}
		total := len(w.waiters)
		return w.await("they wait", func() bool {
			holds := w.to(s.req).locker.Snapshot(1, nil).Holds
			return len(holds) == 1 && holds[0].Waiting == total
		})
	}}
}

// finish lets the handlers that have stopped go on, and checks their answers.
func finish(wants ...want) step {
	return step{sent: "its handler goes on", wants: wants, run: func(w *world, s *step) error {
		w.letGo()
		return s.collect(w, &w.held)
	}}
}

// waited checks the answers of those that waited.
func waited(wants ...want) step {
	return step{sent: "those that waited", wants: wants, run: func(w *world, s *step) error { return s.collect(w, &w.waiters) }}
}

func (s *step) collect(w *world, from *[]chan result) error {
	all := *from
	*from = nil
	for _, answered := range all {
		if err := s.check(w, <-answered); err != nil {
			return err
		}
	}
	return nil
}

// leaves sends r, and closes its connection once the handler runs.
func (r request) leaves() step {
	r.held = true
	return step{req: &r, sent: ", whose client hangs up while it runs", wants: []want{{"none", nil}}, run: func(w *world, s *step) error {
		conn, err := dial(s.req, w.to(s.req).addr(), w.patience())
		if err != nil {
			return err
		}
		if err := w.enter(); err != nil {
			return err
		}
		return conn.Close()
	}}
}

// stalls sends r, whose body does not come to its end.
func (r request) stalls() step {
	r.more = 100
	return step{req: &r, sent: ", whose body does not end", wants: []want{{"none yet", nil}}, run: func(w *world, s *step) error {
		before := w.arrived.Load()
		conn, err := dial(s.req, w.to(s.req).addr(), w.patience())
		if err != nil {
			return err
		}
		w.open = append(w.open, conn)
		return w.await("the request arrives", func() bool { return w.arrived.Load() > before })
	}}
}

// asks sends r, which another process has to wait for.
func (r request) asks() step {
	return step{req: &r, wants: []want{{"waits", nil}}, run: func(w *world, s *step) error {
		before := w.arrived.Load()
		w.waiters = append(w.waiters, w.background(s.req))
		return w.await("the request arrives", func() bool { return w.arrived.Load() > before })
	}}
}

// crowd sends r n times at once; all get what wants say.
func (r request) crowd(n int, wants ...want) step {
	return step{req: &r, sent: fmt.Sprintf(", %d at once", n), wants: wants, run: func(w *world, s *step) error {
		all := make([]chan result, n)
		for i := range all {
			all[i] = w.background(s.req)
		}
		return s.collect(w, &all)
	}}
}

// together sends r n times at once. One gets what wants say, the others that too, a replay of it, or 409 while it runs.
func (r request) together(n int, wants ...want) step {
	others := want{words: "the others replayed, or `409`"}
	return step{req: &r, sent: fmt.Sprintf(", %d at once", n), wants: append(wants, others), run: func(w *world, s *step) error {
		all := make([]chan result, n)
		for i := range all {
			all[i] = w.background(s.req)
		}
		var results []result
		for _, answered := range all {
			results = append(results, <-answered)
		}
		one := step{wants: wants}
		first := -1
		for i, res := range results {
			if res.err != nil {
				return res.err
			}
			if one.check(w, res) == nil && first < 0 {
				first = i
			}
		}
		if first < 0 {
			return fmt.Errorf("none of %d is what one has to be; one is: %w", n, one.check(w, results[0]))
		}
		for i, res := range results {
			if i != first && res.answer.status != http.StatusConflict && replay().check(w, res.answer) != nil {
				return fmt.Errorf("%d %q, want a replay, or 409", res.answer.status, res.answer.body)
			}
		}
		return nil
	}}
}
