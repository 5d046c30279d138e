package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"
)

const (
	maxBody     = 64 << 10
	maxSKU      = 64 // characters
	maxQuantity = 1000
	maxItems    = 16
)

// orderRequest is the body of POST /orders.
type orderRequest struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
}

// cartRequest is the body of POST /carts.
type cartRequest struct {
	Items  []orderRequest `json:"items"`
	Coupon string         `json:"coupon"` // "" for none
}

// requestBody is the body of a submission.
type requestBody interface {
	orderRequest | cartRequest
	check() error
	shape() string // its description, for refusals
}

// readBody reads the body of a submission, whatever its Content-Type says, so
// that curl -d will do. Its errors are refusals.
func readBody[T requestBody](w http.ResponseWriter, r *http.Request) (body T, err error) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	err = decoder.Decode(&body)
	if err == nil {
		// Something follows the object, perhaps a second order.
		if _, err = decoder.Token(); errors.Is(err, io.EOF) {
			return body, body.check()
		}
	}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return body, errTooLarge
	}
	return body, &refusal{http.StatusBadRequest, "The body must be one JSON object with " + body.shape() + ", and no others."}
}

func (orderRequest) shape() string { return `the members "sku", a text, and "quantity", an integer` }

func (cartRequest) shape() string {
	return `the members "items", a list of objects with "sku" and "quantity", and "coupon", a text`
}

// bodyFirst reads the body before next runs, so that a client which sends it
// slowly holds no lock meanwhile.
func bodyFirst(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			refuse(w, errTooLarge)
			return
		}
		if err != nil {
			refuse(w, &refusal{http.StatusBadRequest, "The body did not arrive."})
			return
		}
		whole := r.WithContext(r.Context())
		whole.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, whole)
	})
}

// discardBody reads a body that has no meaning, because net/http notices only
// then that the client has gone away.
func discardBody(w http.ResponseWriter, r *http.Request) error {
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		return errTooLarge // or the client is gone, and does not read it
	}
	return nil
}

var errTooLarge = &refusal{http.StatusRequestEntityTooLarge, "The body has more than 64 KiB."}

func (o orderRequest) check() error {
	if n := utf8.RuneCountInString(o.SKU); n < 1 || n > maxSKU {
		return &refusal{http.StatusBadRequest, `"sku" must have 1 to 64 characters.`}
	}
	if o.Quantity < 1 || o.Quantity > maxQuantity {
		return &refusal{http.StatusBadRequest, `"quantity" must be 1 to 1000.`}
	}
	return nil
}

func (c cartRequest) check() error {
	if n := len(c.Items); n < 1 || n > maxItems {
		return &refusal{http.StatusBadRequest, `"items" must have 1 to 16 of them.`}
	}
	if utf8.RuneCountInString(c.Coupon) > maxSKU {
		return &refusal{http.StatusBadRequest, `"coupon" must have at most 64 characters.`}
	}
	for _, item := range c.Items {
		if err := item.check(); err != nil {
			return err
		}
	}
	return nil
}
