package snippets_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// The first blocks of docs/steps.md are from example/full/pay, and are tested there.

var mayStillOrder = func(context.Context) bool { return true }

type undo struct{ Ticket, Step, Key string }

type undoTable interface {
	Insert(ctx context.Context, u undo) error
	Open(ctx context.Context) []undo
	Undo(ctx context.Context, u undo) error
	Drop(ctx context.Context, u undo) error
}

// endUnfinished runs once a night.
func endUnfinished(ctx context.Context, locker *lock.Locker, undos undoTable) error {
	for u, err := range locker.Unfinished(ctx) {
		if err != nil {
			return err
		}
		if time.Since(u.Since) < time.Hour {
			continue // its client may still repeat it
		}
		for _, s := range u.Steps { // each is done, or may be: its service knows it by its key
			if err := undos.Insert(ctx, undo{u.Ticket, s.Name, s.Key}); err != nil {
				return err
			}
		}
	}
	for _, u := range undos.Open(ctx) { // also those of the night before
		err := latch.Finish(ctx, locker, u.Ticket, latch.Answer{Status: http.StatusConflict, Body: []byte("not placed, and nothing was charged\n")})
		switch {
		case err == nil: // repeats get this answer from now on
			err = undos.Undo(ctx, u)
		case errors.Is(err, lock.ErrLost), errors.Is(err, lock.ErrSettled):
			err = undos.Drop(ctx, u) // it was repeated, and has its own answer
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func hookOfSteps() latch.IdempotentOption {
	asks := latch.WithReplay(func(r *http.Request, _ *latch.Answer) error {
		if !mayStillOrder(r.Context()) {
			return &keyfunc.Error{Status: http.StatusForbidden}
		}
		return nil
	})
	return asks
}

type undosOfTest struct {
	open, undone []undo
}

func (t *undosOfTest) Insert(_ context.Context, u undo) error {
	t.open = append(t.open, u)
	return nil
}
func (t *undosOfTest) Open(context.Context) []undo { return slices.Clone(t.open) }
func (t *undosOfTest) Undo(ctx context.Context, u undo) error {
	t.undone = append(t.undone, u)
	return t.Drop(ctx, u)
}

func (t *undosOfTest) Drop(_ context.Context, u undo) error {
	t.open = slices.DeleteFunc(t.open, func(other undo) bool { return other == u })
	return nil
}

// Reserved, perhaps charged, and never repeated: the job finds it, answers it and takes it back.
func TestEndUnfinished(t *testing.T) {
	t.Parallel()
	locker := newLocker(t, memstore.New())
	once := latch.Idempotent(locker.With(lock.WithRerunAbandoned()), keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, latch.WithKeySecret(keySecret))
	var keys []string
	h := auth.Require(once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, lost := range map[string]error{"reserve": nil, "charge": errors.New("no reply")} {
			_, _ = latch.Step(r.Context(), name, func(context.Context) (string, error) { return "1", lost })
			key, _ := latch.DeriveKey(r.Context(), name)
			keys = append(keys, key)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})))
	require.Equal(t, http.StatusServiceUnavailable, ask(h, "POST", "/orders", "k").Code)
	var undos undosOfTest
	require.NoError(t, endUnfinished(t.Context(), locker, &undos))
	require.Empty(t, undos.undone, "it began a moment ago")
	for u, err := range locker.Unfinished(t.Context()) {
		require.NoError(t, err)
		require.Equal(t, "42", u.Label)
		for _, s := range u.Steps { // as an hour later
			require.NoError(t, undos.Insert(t.Context(), undo{u.Ticket, s.Name, s.Key}))
		}
	}
	require.NoError(t, endUnfinished(t.Context(), locker, &undos))
	require.Len(t, undos.undone, 2)
	require.Equal(t, []string{"reserve", "charge"}, []string{undos.undone[0].Step, undos.undone[1].Step})
	require.ElementsMatch(t, keys, []string{undos.undone[0].Key, undos.undone[1].Key})
	require.Empty(t, undos.open)
	w := ask(h, "POST", "/orders", "k")
	require.Equal(t, http.StatusConflict, w.Code)
	require.Equal(t, "true", w.Header().Get("Idempotent-Replayed"))
	for u, err := range locker.Unfinished(t.Context()) {
		t.Error("it is finished", u, err)
	}
}

func TestHookOfSteps(t *testing.T) { //nolint:paralleltest // mayStillOrder is a variable
	defer func() { mayStillOrder = func(context.Context) bool { return true } }()
	h := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey, hookOfSteps())(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	require.Equal(t, http.StatusCreated, ask(h, "POST", "/orders", "k").Code)
	require.Equal(t, http.StatusCreated, ask(h, "POST", "/orders", "k").Code)
	mayStillOrder = func(context.Context) bool { return false }
	require.Equal(t, http.StatusForbidden, ask(h, "POST", "/orders", "k").Code)
}
