package client

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"time"
)

const (
	// peekTime bounds the time in which the body of a refusal is read.
	peekTime = 5 * time.Second

	// The part of a refusal that is read, so that its connection can be used again.
	maxDrain  = 16 << 10
	drainTime = time.Second
)

// problemHeader has the kind of a refusal of httplatch, whatever the format of its body.
const problemHeader = "Latch-Problem"

// problemOf returns the problem of a refusal, or nil. Without the header, which a proxy may have
// removed, the body decides. err is set if the refusal broke off. problemOf closes a body that does
// not arrive in time.
func problemOf(resp *http.Response) (p *Problem, err error) {
	if resp.StatusCode < http.StatusBadRequest {
		return nil, nil //nolint:nilnil // most answers are no problem
	}
	kind := resp.Header.Get(problemHeader)
	if _, known := repeats[kind]; known {
		return &Problem{Status: resp.StatusCode, Type: kindBase + kind}, nil
	}
	inFlight := mayBeInFlight(resp)
	if !inFlight && !saysProblem(resp) {
		return nil, nil //nolint:nilnil // an error of the application
	}
	source := resp.Body
	timer := time.AfterFunc(peekTime, func() { _ = source.Close() })
	defer timer.Stop()
	body, err := readStart(resp, maxProblem)
	switch {
	case err != nil || len(body) > maxProblem:
		return nil, err
	case inFlight && !saysInFlight(body):
		return nil, nil //nolint:nilnil // a conflict of another kind
	}
	if p, _ = decodeProblem(resp, body); p != nil && inFlight {
		p.Type = kindBase + "in-progress"
	}
	return p, nil
}

// mayBeInFlight reports whether an answer can be the form of in-progress in a contract.
func mayBeInFlight(resp *http.Response) bool {
	if resp.StatusCode != http.StatusConflict || resp.Body == nil {
		return false
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && media == "application/json"
}

// saysInFlight reports whether this body says that the first request is in flight, in the words
// of the Agentic Commerce Protocol or of Stripe.
func saysInFlight(body []byte) bool {
	var says struct {
		Code  string `json:"code"`
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &says) // if it fails, no code is set
	return says.Code == "idempotency_in_flight" || says.Error.Code == "idempotency_key_in_use"
}

// discard ends an answer that the caller does not get.
func discard(resp *http.Response) {
	body := resp.Body
	if body == nil { // net/http never returns a nil body, but another base may
		return
	}
	timer := time.AfterFunc(drainTime, func() { _ = body.Close() })
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	timer.Stop()
	_ = body.Close()
}
