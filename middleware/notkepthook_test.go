package middleware_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// Two requests of an outer guard have one key behind an inner one. The second waits for the first, which
// fails, and a hook refuses or changes the answer of the first for the second. The outer guard keeps
// neither: no work was done, and the repeat of the second runs.
func TestFailureThatAHookHasChangedIsNotKeptOutside(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(r *http.Request, a *latch.Answer) error{
		"refused": func(*http.Request, *latch.Answer) error {
			return &keyfunc.Error{Status: http.StatusUnprocessableEntity, Err: errors.New("not yours")}
		},
		"changed": func(_ *http.Request, a *latch.Answer) error { a.Status = http.StatusUnprocessableEntity; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLocker(t, memstore.New())
				fail := make(chan struct{})
				h := latch.Idempotent(l, byUser, keyfunc.Header("X-Outer"))(once(l, latch.WithReplay(hook), latch.WithName("inner"))(
					http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("X-Outer") == "second" {
							w.WriteHeader(http.StatusCreated)
							return
						}
						<-fail
						w.WriteHeader(http.StatusInternalServerError)
					})))
				send := func(outer string) *httptest.ResponseRecorder {
					r := keyed("k")
					r.Header.Set("X-Outer", outer)
					return serve(h, r)
				}
				go send("first")
				synctest.Wait()
				second := make(chan *httptest.ResponseRecorder, 1)
				go func() { second <- send("second") }()
				synctest.Wait()
				close(fail)
				require.Equal(t, http.StatusUnprocessableEntity, (<-second).Code)
				require.Equal(t, http.StatusCreated, send("second").Code)
			})
		})
	}
}
