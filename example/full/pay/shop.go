package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// shop sells lamps.
type shop struct {
	services *http.Client
	at       string // the address of the services
}

func newShop(locker *lock.Locker, at string, keySecret []byte) http.Handler {
	user := keyfunc.Header("X-User-ID") // a real shop takes it from its authentication: keyfunc.Context
	once := latch.Idempotent(locker.With(lock.WithRerunAbandoned()), user, keyfunc.IdempotencyKey, latch.WithKeySecret(keySecret))
	s := &shop{&http.Client{Transport: client.Transport(nil, client.WithAttempts(1))}, at} // the next attempt repeats a call
	mux := http.NewServeMux()
	mux.Handle("POST /orders", once(http.HandlerFunc(s.buyLamp)))
	return mux
}

func (s *shop) call(ctx context.Context, name, about string) (id string, err error) {
	return latch.Step(ctx, name, func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.at+"/"+name, strings.NewReader(about))
		if err != nil {
			return "", err
		}
		resp, err := s.services.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusOK:
			id, err := io.ReadAll(resp.Body)
			return string(id), err
		case http.StatusUnprocessableEntity:
			return "", nil // refused: a result, too, by which all attempts decide
		}
		return "", errors.New(resp.Status) // no result: the next attempt asks again, with the same key
	})
}

func (s *shop) buyLamp(w http.ResponseWriter, r *http.Request) {
	var charge, parcel string
	stock, err := s.call(r.Context(), "reserve", "a lamp")
	if stock != "" {
		charge, err = s.call(r.Context(), "charge", stock)
	}
	if charge != "" {
		parcel, err = s.call(r.Context(), "courier", charge)
	}
	switch {
	case err != nil:
		http.Error(w, "try again", http.StatusServiceUnavailable) // not kept: the next attempt goes on
	case parcel == "":
		s.takeBack(w, r, stock, charge)
	default:
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintln(w, parcel)
	}
}

// takeBack ends an order that was refused.
func (s *shop) takeBack(w http.ResponseWriter, r *http.Request, stock, charge string) {
	var refund string
	var err error
	if charge != "" {
		refund, err = s.call(r.Context(), "refund", charge)
	}
	if err == nil && stock != "" {
		_, err = s.call(r.Context(), "release", stock)
	}
	switch {
	case err != nil:
		http.Error(w, "try again", http.StatusServiceUnavailable) // not kept: the next attempt decides the same, and goes on
	case charge != "" && refund == "":
		http.Error(w, "not placed, and charged: we will contact you", http.StatusConflict) // kept
	default:
		http.Error(w, "not placed, and nothing was charged", http.StatusConflict) // kept
	}
}
