package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

type handler struct {
	locker  *lock.Locker
	store   lock.Store
	origins *http.CrossOriginProtection
	mount   openMount
}

// whole looks text up as a whole key: as it is, as name=value whose value holds
// something that lock.Key escapes, and as what a program gave to lock.Locker.Once.
// Whole keys are found at once, however many there are. free is those of them
// that read like a key and are free.
func (h *handler) whole(ctx context.Context, text string) (found []lock.Entry, free []string, err error) {
	candidates := []string{text}
	if name, value, ok := strings.Cut(text, "="); ok {
		candidates = append(candidates, lock.Key(name, value))
	}
	candidates = append(candidates, keytext.Record(text))
	for i, key := range candidates {
		if slices.Contains(candidates[:i], key) || len(key) > keytext.MaxBytes {
			continue
		}
		e, err := h.get(ctx, key)
		switch {
		case err != nil:
			return found, free, err
		case e.Key != "":
			found = append(found, e)
		case i == 0 && strings.Contains(text, "="):
			free = append(free, visible(key))
		}
	}
	if len(found) > 0 {
		free = nil
	}
	return found, free, nil
}

// get returns the entry of key, the zero Entry if there is none.
func (h *handler) get(ctx context.Context, key string) (lock.Entry, error) {
	e, err := h.store.Get(ctx, key)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		// There is one, whose receipt cannot be opened. A list yields it without.
		return h.unopened(ctx, key)
	case err != nil:
		return lock.Entry{}, err
	case e.State == lock.Free:
		return lock.Entry{}, nil
	}
	e.Key = key
	return e, nil
}

// unanswered is the error of the store if it does not even read an entry, nil if it does.
func (h *handler) unanswered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if _, err := h.store.Get(ctx, "check"); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// unopened looks for key in the list.
func (h *handler) unopened(ctx context.Context, key string) (lock.Entry, error) {
	if inspector, ok := h.store.(lock.Inspector); ok {
		for e, err := range inspector.List(ctx) {
			if e.Key == key {
				return e, nil
			}
			switch {
			case e.Key != "" || err == nil: // an error is of that entry
			case errors.Is(err, errors.ErrUnsupported): // a store over one that is no Inspector
				return lock.Entry{Key: key}, nil
			default:
				return lock.Entry{}, err
			}
		}
	}
	return lock.Entry{Key: key}, nil
}

// forget uses what the store has for it: Release is as safe, and does not remove
// receipts.
func (h *handler) forget(ctx context.Context, key, token string) (bool, error) {
	if inspector, ok := h.store.(lock.Inspector); ok {
		if ok, err := inspector.Forget(ctx, key, token); !errors.Is(err, errors.ErrUnsupported) {
			return ok, err
		}
	}
	return h.store.Release(ctx, key, lock.Claim{Token: token})
}
