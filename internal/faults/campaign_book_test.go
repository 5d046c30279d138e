package faults_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// The invariants that the campaign checks. (That nothing leaks is seen by the
// package's TestMain, when all of its lockers have been closed.)
const (
	oneHolder      = "one-holder"
	ownRelease     = "own-release"
	noOrphan       = "no-orphan"
	noSelfConflict = "no-self-conflict"
	threeOutcomes  = "three outcomes"
	notified       = "notified"
	runsOnce       = "once"
	sameAnswer     = "same-answer"
	bounded        = "bounded"
	fenced         = "fenced"
)

var invariants = []string{oneHolder, ownRelease, noOrphan, noSelfConflict, threeOutcomes, notified, runsOnce, sameAnswer, bounded, fenced, "no-leak"}

// book records the holders and the actions of each.
type book struct {
	timers *timers

	mu      sync.Mutex
	found   []string
	holders map[string]*holding
	renewed map[string]time.Time // by key: when a renewal was last answered
	fences  map[string]int64     // by key: the highest that was accepted
	effects map[string]int
	taken   map[string]int // takeovers
	answers map[string]string
	replied map[string]bool // a caller of Once was given its own answer
}

func newBook() *book {
	return &book{
		timers:  watchTimers(),
		holders: make(map[string]*holding), renewed: make(map[string]time.Time), fences: make(map[string]int64),
		effects: make(map[string]int), taken: make(map[string]int), answers: make(map[string]string),
		replied: make(map[string]bool),
	}
}

func (b *book) violated(invariant, format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.found = append(b.found, invariant+": "+fmt.Sprintf(format, args...))
}

func (b *book) violations() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.found)
}

// bounded checks that what began when timers were late by so much, and was to
// take no longer than a time, has done so.
func (b *book) bounded(most, took, late time.Duration, format string, args ...any) {
	if took > most+campaignSlack+b.timers.sum()-late {
		b.violated(bounded, "%s took %v, not at most %v", fmt.Sprintf(format, args...), took, most)
	}
}

// holding is one lease that work runs under.
type holding struct {
	key   string
	ctx   context.Context //nolint:containedctx // it is the lease
	since time.Time
	late  time.Duration // how late timers were by then
	left  bool
}

// young says that the lease is certainly valid at t: it was granted at most a
// budget after its first send, from which validity counts.
func (h *holding) young(t time.Time) bool {
	return t.Before(h.since.Add(campaignLease*98/100 - campaignBudget))
}

// enter books a holder, and looks for another one whose lease is valid. Of an
// older lease only the context shows, and a busy machine may end that late, so
// it gets some time.
func (b *book) enter(ctx context.Context, key string) *holding {
	h := &holding{key: key, ctx: ctx, since: time.Now(), late: b.timers.sum()}
	b.mu.Lock()
	other := b.holders[key]
	b.holders[key] = h
	b.mu.Unlock()
	switch {
	case other == nil || other.ctx.Err() != nil:
	case other.young(h.since):
		b.violated(oneHolder, "%s is granted, and another lease on it is %v old", key, h.since.Sub(other.since))
	default:
		time.AfterFunc(campaignSlack/2, func() {
			b.mu.Lock()
			still := !other.left
			b.mu.Unlock()
			if still && other.ctx.Err() == nil {
				b.violated(oneHolder, "%s was granted, and a lease on it that is %v old is still believed in", key, time.Since(other.since))
			}
		})
	}
	return h
}

// leave books the end of work, before the lease is given back.
func (b *book) leave(h *holding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.left = true
	if b.holders[h.key] == h {
		delete(b.holders, h.key)
	}
}

// wasNotified checks a holder whose context has just ended though its caller's has
// not.
func (b *book) wasNotified(h *holding) {
	b.mu.Lock()
	last := b.renewed[h.key]
	b.mu.Unlock()
	if last.Before(h.since) {
		last = h.since
	}
	if late := time.Since(last) - campaignLease; late > campaignSlack+b.timers.sum()-h.late {
		b.violated(notified, "the holder of %s was notified %v after its lease was over", h.key, late)
	}
	if cause := context.Cause(h.ctx); !errors.Is(cause, lock.ErrLost) {
		b.violated(notified, "the holder of %s was notified with the cause %v", h.key, cause)
	}
}

// write acts as a resource that checks fences, for a holder that believes in its lease.
func (b *book) write(h *holding, fence int64) {
	b.mu.Lock()
	last := b.fences[h.key]
	b.fences[h.key] = max(last, fence)
	b.mu.Unlock()
	if fence <= last && h.young(time.Now()) {
		b.violated(fenced, "a valid lease on %s has the fence %d after %d", h.key, fence, last)
	}
}

// effect books what a run has done to the world. A takeover was seen before.
func (b *book) effect(key string) {
	b.mu.Lock()
	b.effects[key]++
	effects, taken := b.effects[key], b.taken[key]
	b.mu.Unlock()
	if effects > 1+taken {
		b.violated(runsOnce, "%d effects of %s after %d takeovers", effects, key, taken)
	}
}

// answered books what a caller of Once was given. An answer that could not be
// recorded before its lease was over is given to the caller all the same, and
// where abandoned runs may be taken over, the one that is recorded can be
// another; so there only replays are compared.
func (b *book) answered(key string, receipt []byte, replayed bool) {
	b.mu.Lock()
	first := string(receipt)
	if replayed || strings.HasPrefix(key, "run=") {
		if b.answers[key] == "" {
			b.answers[key] = first
		}
		first = b.answers[key]
	}
	if !replayed {
		b.replied[key] = true
	}
	b.mu.Unlock()
	if first != string(receipt) {
		b.violated(sameAnswer, "%s was answered %q and %q", key, first, receipt)
	}
}
