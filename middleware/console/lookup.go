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
	name    string // of the service
	origins *http.CrossOriginProtection
	mount   openMount
}

// lookUpWhole looks text up as a whole key, in three readings: unchanged; as name=value with a
// value that lock.Key would escape; and as a key of lock.Locker.Once. The time for this does not
// depend on the number of entries. free has the readings that look like a key but are free.
func (h *handler) lookUpWhole(ctx context.Context, text string) (found []lock.Entry, free []string, err error) {
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
		// It has a receipt that cannot be opened. The list has it without the receipt.
		return h.unopened(ctx, key)
	case err != nil:
		return lock.Entry{}, err
	case e.State == lock.Free:
		return lock.Entry{}, nil
	}
	e.Key = key
	return e, nil
}

// unanswered returns the error of a store that does not even read an entry, else nil.
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
			case e.Key != "" || err == nil: // err is the error of one entry
			case errors.Is(err, errors.ErrUnsupported): // a store over one that is no Inspector
				return lock.Entry{Key: key}, nil
			default:
				return lock.Entry{}, err
			}
		}
	}
	return lock.Entry{Key: key}, nil
}

// forget removes an entry if it has token. For a store without Forget it uses Release, which is as
// safe, but does not remove receipts.
func (h *handler) forget(ctx context.Context, key, token string) (bool, error) {
	if inspector, ok := h.store.(lock.Inspector); ok {
		if ok, err := inspector.Forget(ctx, key, token); !errors.Is(err, errors.ErrUnsupported) {
			return ok, err
		}
	}
	return h.store.Release(ctx, key, lock.Claim{Token: token})
}
