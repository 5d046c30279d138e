package client

import (
	"encoding/json"
	"errors"
	"hash/maphash"
	"io"
	"mime"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// peekTime bounds the time in which the body of a refusal is read.
	peekTime = 5 * time.Second

	// The part of a refusal that is read, so that its connection can be used again.
	maxDrain  = 16 << 10
	drainTime = time.Second
)

// problemOf returns the problem of a refusal, or nil. err is set if the refusal broke off.
// problemOf closes a body that does not arrive in time.
func problemOf(resp *http.Response) (p *Problem, err error) {
	inFlight := mayBeInFlight(resp)
	if resp.StatusCode < http.StatusBadRequest || !inFlight && !saysProblem(resp) {
		return nil, nil //nolint:nilnil // most answers are no problem
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

// mayBeInFlight reports whether an answer can be how a contract says in-progress.
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
	if body == nil { // never from net/http, but another base may do it
		return
	}
	timer := time.AfterFunc(drainTime, func() { _ = body.Close() })
	_, _ = io.CopyN(io.Discard, body, maxDrain)
	timer.Stop()
	_ = body.Close()
}

// answer is the body of the answer to a request with a key. If it breaks off, the request is sent
// again. If the new answer is the same, its body is read from the same place on.
type answer struct {
	call *call
	seen maphash.Hash // of the bytes read
	read int64        // number of bytes read

	mu     sync.Mutex // so that Close may be called during Read
	resp   http.Response
	closed bool
	err    error // ended the body
}

var errOther = errors.New("client: the request was sent again and got another answer")

// resumable gives resp a body that can be resumed after its connection breaks. It does not change
// the body of a failure: a server need not keep a failure. So another send could run the request
// again, and place an order after the caller has read that there is none.
func (c *call) resumable(resp *http.Response) {
	if resp.Body == nil || resp.Body == http.NoBody || resp.Trailer != nil || resp.StatusCode >= http.StatusBadRequest ||
		resp.StatusCode == http.StatusSwitchingProtocols || c.attempts == 1 || !c.keyed {
		return
	}
	c.answer.call, c.answer.resp = c, *resp
	resp.Body = &c.answer
}

func (a *answer) Read(p []byte) (int, error) {
	for {
		if a.err != nil {
			return 0, a.err
		}
		n, err := a.body().Read(p)
		_, _ = a.seen.Write(p[:n])
		a.read += int64(n)
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, io.EOF) || !a.resume(err):
			a.err = err
		}
		if n > 0 {
			return n, nil
		}
	}
}

func (a *answer) Close() error {
	a.mu.Lock()
	a.closed = true
	body := a.resp.Body
	a.mu.Unlock()
	return body.Close()
}

func (a *answer) body() io.Reader {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.resp.Body
}

// ended reports whether the caller has closed the body.
func (a *answer) ended() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed
}

// resume sends the request again after the answer has broken off with err. It reports whether an
// answer could be resumed.
func (a *answer) resume(err error) bool {
	c := a.call
	resp := a.resp
	for {
		if a.ended() {
			return false
		}
		v := judge(c.shown.Context(), c.shown.Method, c.keyed, nil, nil, err)
		body, again, ended := c.repeat(v, &resp, err)
		if ended != nil || !again {
			return false
		}
		next, failed := c.run(body)
		if failed != nil {
			return false
		}
		if err = a.skip(next); err == nil {
			return a.adopt(next)
		}
		if errors.Is(err, errOther) {
			discard(next)
			return false
		}
		resp = *next
	}
}

// skip reads the bytes that the caller has already read. It returns errOther if next is
// not the same answer, and another error if it broke off, too.
func (a *answer) skip(next *http.Response) error {
	if next.Body == nil || !sameHeader(&a.resp, next) {
		return errOther
	}
	var same maphash.Hash
	same.SetSeed(a.seen.Seed())
	_, err := io.CopyN(&same, next.Body, a.read)
	switch {
	case errors.Is(err, io.EOF) || err == nil && same.Sum64() != a.seen.Sum64():
		return errOther
	default:
		return err
	}
}

// sameHeader reports whether two answers can be the same, judged by their headers. The length is
// compared only if both have it: a replay may have a Content-Length that a chunked answer lacks.
func sameHeader(a, b *http.Response) bool {
	if a.StatusCode/100 != b.StatusCode/100 || a.ContentLength >= 0 && b.ContentLength >= 0 && a.ContentLength != b.ContentLength {
		return false
	}
	for _, name := range []string{"Location", "Etag", "Content-Type", "Content-Encoding"} {
		if !slices.Equal(a.Header[name], b.Header[name]) {
			return false
		}
	}
	return true
}

func (a *answer) adopt(next *http.Response) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		_ = next.Body.Close()
		return false
	}
	a.resp = *next
	return true
}
