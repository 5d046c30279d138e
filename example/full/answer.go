package main

import (
	"encoding/json"
	"errors"
	"net/http"
)

// refusal is an error for the client: a status and what is wrong.
type refusal struct {
	status int
	detail string
}

func (e *refusal) Error() string { return e.detail }

// refuse answers with err as problem+json. Only the text of a *refusal is sent.
func refuse(w http.ResponseWriter, err error) {
	own := &refusal{http.StatusInternalServerError, "The server failed."}
	errors.As(err, &own)
	if own.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Cache-Control", "no-store")
	answer(w, own.status, "application/problem+json", problem{http.StatusText(own.status), own.status, own.detail})
}

// problem is the body of a refusal, as RFC 9457 describes it.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	answer(w, status, "application/json", v)
}

func answer(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type that JSON does not have: a mistake in this program
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	// A client that has gone away is the only cause of an error.
	_, _ = w.Write(append(body, '\n'))
}
