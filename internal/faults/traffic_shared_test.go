package faults_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// fencedSpot is the resource behind a key that many callers want.
type fencedSpot struct {
	mu       sync.Mutex
	inside   *lock.Lease
	newest   int64
	grants   int
	overlaps []time.Time // when one was granted while another believed in its lease
}

// enter books a holder. Every later holder has a higher fence, whatever happens.
func (s *fencedSpot) enter(e *lock.Lease) error {
	fence, ok := e.Fence()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside != nil && s.inside.Context().Err() == nil {
		s.overlaps = append(s.overlaps, time.Now())
	}
	s.inside = e
	s.grants++
	newest := s.newest
	s.newest = max(newest, fence)
	if !ok || fence <= newest {
		return fmt.Errorf("fenced: a grant with the fence %d after %d", fence, newest)
	}
	return nil
}

func (s *fencedSpot) leave(e *lock.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside == e {
		s.inside = nil
	}
}

// compete takes and frees a key that others want too.
func (tr *traffic) compete(c *caller, key string, spot *fencedSpot) {
	guarded := c.locker.With(fencing)
	tr.each(func() {
		began := time.Now()
		e, err := guarded.Acquire(context.Background(), key)
		switch {
		case errors.Is(err, lock.ErrHeld):
			return
		case err != nil:
			tr.book(c, key, began, err)
			return
		}
		if err := spot.enter(e); err != nil {
			tr.fault("%v", err)
		}
		time.Sleep(time.Millisecond)
		spot.leave(e)
		began = time.Now()
		if err := e.Release(context.Background()); err != nil {
			tr.book(c, key, began, err)
		}
	})
}

// runLog counts the effects of runs.
type runLog struct {
	next atomic.Int64

	mu      sync.Mutex
	effects map[string]int
	answers map[string]string
	changed []string
}

func newRunLog() *runLog {
	return &runLog{effects: make(map[string]int), answers: make(map[string]string)}
}

// run asks for runs, each of which others ask for too.
func (tr *traffic) run(c *caller, log *runLog) {
	tr.each(func() {
		key := fmt.Sprintf("order=%d", log.next.Add(1)/4)
		began := time.Now()
		receipt, _, err := c.locker.Once(context.Background(), key, nil, func(context.Context) ([]byte, error) {
			log.mu.Lock()
			defer log.mu.Unlock()
			log.effects[key]++
			return fmt.Appendf(nil, "%s by %s", key, c.client), nil
		})
		switch {
		case err == nil:
			log.answered(key, string(receipt))
		case !errors.Is(err, lock.ErrHeld):
			tr.book(c, key, began, err)
		}
	})
}

func (l *runLog) answered(key, answer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.answers[key]; first != "" && first != answer {
		l.changed = append(l.changed, fmt.Sprintf("%s: %q, then %q", key, first, answer))
	}
	l.answers[key] = answer
}

func (l *runLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.effects)
}

// again has the runs that had an effect more than once, or more than one answer.
func (l *runLog) again() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.changed
	for key, n := range l.effects {
		if n > 1 {
			found = append(found, fmt.Sprintf("%s: %d effects", key, n))
		}
	}
	return found
}
