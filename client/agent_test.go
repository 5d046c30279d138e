package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
)

// textSeller is a server that was written from the text of a contract, and uses nothing of this module.
type textSeller struct {
	contract

	mu      sync.Mutex
	results map[string]*textResult // by key
	keys    []string               // of all requests
	effects int
	answer  func(effect int) (status int, took time.Duration) // nil: 201 at once
}

type textResult struct {
	body   []byte
	status int // 0: in flight
	done   chan struct{}
}

// contract holds the differences between the two texts.
type contract struct {
	equal    func(a, b []byte) bool
	refuse   func(w http.ResponseWriter, status int, code string)
	conflict int
	inFlight bool // a request in flight has its own status; if false, the second request waits
}

// acpText is rfc.agentic_checkout.md, section 6.
var acpText = contract{
	equal: func(a, b []byte) bool { // 6.2
		var one, other any
		return json.Unmarshal(a, &one) == nil && json.Unmarshal(b, &other) == nil && reflect.DeepEqual(one, other)
	},
	refuse: func(w http.ResponseWriter, status int, code string) { // 6.4
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"type":"invalid_request","code":%q,"message":"m"}`, code)
	},
	conflict: http.StatusUnprocessableEntity,
	inFlight: true,
}

// ucpText is signatures.md, "Replay Protection".
var ucpText = contract{
	equal: func(a, b []byte) bool { return sha256.Sum256(a) == sha256.Sum256(b) },
	refuse: func(w http.ResponseWriter, status int, code string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"code":%q,"content":"m"}`, code)
	},
	conflict: http.StatusConflict,
}

func (s *textSeller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	s.mu.Lock()
	s.keys = append(s.keys, key)
	found := s.results[key]
	switch {
	case key == "":
		s.refuse(w, http.StatusBadRequest, "idempotency_key_required")
		s.mu.Unlock()
		return
	case found != nil && !s.equal(found.body, body):
		s.refuse(w, s.conflict, "idempotency_conflict")
		s.mu.Unlock()
		return
	case found != nil && found.status == 0 && s.inFlight:
		s.refuse(w, http.StatusConflict, "idempotency_in_flight")
		s.mu.Unlock()
		return
	case found != nil:
		s.mu.Unlock()
		<-found.done
		w.Header().Set("Idempotent-Replayed", "true")
		w.WriteHeader(found.status)
		return
	}
	result := &textResult{body: body, done: make(chan struct{})}
	s.results[key] = result
	s.effects++
	status, took := http.StatusCreated, time.Duration(0)
	if s.answer != nil {
		status, took = s.answer(s.effects)
	}
	s.mu.Unlock()
	time.Sleep(took)
	s.mu.Lock()
	defer s.mu.Unlock()
	if result.status = status; status >= 500 { // 6.5; UCP is the same
		delete(s.results, key)
	}
	close(result.done)
	w.WriteHeader(status)
}

// direct sends requests to a handler in its own process, as a network would.
type direct struct{ to http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	received := httptest.NewRequestWithContext(context.Background(), r.Method, "/checkout_sessions", r.Body)
	for name, values := range r.Header {
		received.Header.Set(name, values[0])
	}
	w := httptest.NewRecorder()
	d.to.ServeHTTP(w, received)
	return w.Result(), nil
}

// lossy is a network that loses answers.
type lossy struct {
	http.RoundTripper

	next int // how many
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil && l.next > 0 {
		l.next--
		return nil, errors.Join(errors.New("connection reset by peer"), resp.Body.Close())
	}
	return resp, err
}

// TestAgentOfEachContract: an agent over client.Transport keeps the sentences that bind it,
// against servers that were written from the contracts' own text.
func TestAgentOfEachContract(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]contract{"ACP": acpText, "UCP": ucpText} {
		play := func(what string, scene func(t *testing.T, s *textSeller, way *lossy, ask func(ctx context.Context, body string) *http.Response)) {
			parallel.Run(t, name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &textSeller{contract: text, results: map[string]*textResult{}}
					way := &lossy{RoundTripper: direct{s}}
					c := &http.Client{Transport: client.Transport(way)}
					scene(t, s, way, func(ctx context.Context, body string) *http.Response {
						req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://seller.example/", bytes.NewBufferString(body))
						require.NoError(t, err)
						resp, err := c.Do(req)
						require.NoError(t, err)
						require.NoError(t, resp.Body.Close())
						return resp
					})
				})
			})
		}
		play("a key on every POST, a fresh one for each operation", func(t *testing.T, s *textSeller, _ *lossy, ask func(context.Context, string) *http.Response) {
			require.Equal(t, 201, ask(t.Context(), `{"a":1}`).StatusCode)
			require.Equal(t, 201, ask(t.Context(), `{"a":1}`).StatusCode) // meant twice
			require.Equal(t, 201, ask(t.Context(), `{"a":2}`).StatusCode)
			require.Equal(t, 3, s.effects)
			for i, key := range s.keys {
				require.GreaterOrEqual(t, len(key), 22, "128 bits")
				require.NotContains(t, s.keys[:i], key)
			}
		})
		play("a lost answer", func(t *testing.T, s *textSeller, way *lossy, ask func(context.Context, string) *http.Response) {
			way.next = 3
			resp := ask(t.Context(), `{"a":1,"b":null}`)
			require.Equal(t, 201, resp.StatusCode)
			require.Equal(t, "true", resp.Header.Get("Idempotent-Replayed"))
			require.Len(t, s.keys, 4)
			require.Equal(t, 1, s.effects)
		})
		play("in flight", func(t *testing.T, s *textSeller, _ *lossy, ask func(context.Context, string) *http.Response) {
			s.answer = func(int) (int, time.Duration) { return 201, 20 * time.Second }
			ctx := client.WithKey(t.Context(), "8e03978e")
			first := make(chan struct{})
			go func() { defer close(first); ask(ctx, `{}`) }()
			synctest.Wait()
			require.Equal(t, 201, ask(ctx, `{}`).StatusCode)
			<-first
			require.Equal(t, 1, s.effects)
		})
		play("a conflict is permanent", func(t *testing.T, s *textSeller, _ *lossy, ask func(context.Context, string) *http.Response) {
			ctx := client.WithKey(t.Context(), "8e03978e")
			ask(ctx, `{"a":1}`)
			require.Equal(t, s.conflict, ask(ctx, `{"a":2}`).StatusCode)
			require.Equal(t, []string{"8e03978e", "8e03978e"}, s.keys, "neither again, nor with another key")
			require.Equal(t, 1, s.effects)
		})
		play("a server error is tried again with the same key", func(t *testing.T, s *textSeller, _ *lossy, ask func(context.Context, string) *http.Response) {
			s.answer = func(effect int) (int, time.Duration) { return map[bool]int{true: 503, false: 201}[effect < 3], 0 }
			require.Equal(t, 201, ask(t.Context(), `{}`).StatusCode)
			require.Len(t, s.keys, 3)
			require.Len(t, s.results, 1)
		})
	}
}

// TestAgentWithoutTheTransport is the twin: a client that repeats by itself breaks both contracts.
func TestAgentWithoutTheTransport(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]contract{"ACP": acpText, "UCP": ucpText} {
		s := &textSeller{contract: text, results: map[string]*textResult{}}
		way := &lossy{RoundTripper: direct{s}, next: 1}
		for n := range 2 { // a new key for each attempt
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://seller.example/", strings.NewReader(`{}`))
			require.NoError(t, err)
			req.Header.Set("Idempotency-Key", fmt.Sprint("attempt-", n))
			if resp, err := way.RoundTrip(req); err == nil {
				require.NoError(t, resp.Body.Close())
			}
		}
		require.Equal(t, 2, s.effects, name)
	}
}
