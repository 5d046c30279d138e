package redisstore_test

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	latch "github.com/httplatch/httplatch/middleware"
)

// testdata/recorded.json has the entries that an earlier version (e808c87, 2026-11) left in Redis. Processes of both
// versions share a Redis during a deployment, so both have to write the same bytes.
type recorded struct {
	Entries []recordedEntry
	Answers []recordedAnswer
}

type recordedEntry struct {
	What                      string
	Key, Fingerprint, Receipt hexText
	Token, Owner              string
	Attempt                   int
	LingerMS                  int64
	Fenced                    bool
	End                       string
	Name                      string
	Value                     hexText
}

func (r *recordedEntry) claim() lock.Claim {
	return lock.Claim{
		Token: r.Token, Attempt: r.Attempt, Fingerprint: []byte(r.Fingerprint), Owner: r.Owner,
		Lease: 30 * time.Second, Linger: time.Duration(r.LingerMS) * time.Millisecond, Fenced: r.Fenced,
	}
}

type recordedAnswer struct {
	What, Method, Path, Body string
	Header                   http.Header
	Status                   int
	Answer                   string
	AnswerHeader             http.Header
	Name                     string
	Value                    hexText
}

type hexText string

func (h *hexText) UnmarshalText(b []byte) error {
	text, err := hex.DecodeString(string(b))
	*h = hexText(text)
	return err
}

func readRecorded(t *testing.T) (all recorded) {
	t.Helper()
	b := must.Get(os.ReadFile("testdata/recorded.json"))(t)
	require.NoError(t, json.Unmarshal(b, &all))
	return all
}

// An entry has the same name and the same bytes as in earlier versions, except for the fence, which
// is a time. Entries of earlier versions are read correctly.
func TestRecordedEntries(t *testing.T) {
	t.Parallel()
	for _, r := range readRecorded(t).Entries {
		t.Run(r.What, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			s := open(t, valkey.of(t, srv).URL(), redisstore.WithPrefix("rec:"))
			ctx, key := timeout(t, time.Minute), string(r.Key)
			want := writeRecorded(t, s, &r)
			name, value := onlyEntry(t, srv)
			require.Equal(t, r.Name, name)
			require.Equal(t, withoutFence(string(r.Value)), withoutFence(value))

			srv.Do(t, "SET", r.Name, string(r.Value), "KEEPTTL")
			got := must.Entry(t)(s.Get(ctx, key))
			if r.Fenced && r.End != "release" {
				require.Positive(t, got.Fence)
			}
			got.Left, want.Left, got.Fence, want.Fence = 0, 0, 0, 0
			require.Equal(t, want, got)
			if got.State == lock.Held {
				must.Yes(t)(s.Release(ctx, key, r.claim()))
			}
		})
	}
}

// writeRecorded writes the entry of r, and returns the entry as the store reads it.
func writeRecorded(t *testing.T, s *redisstore.Store, r *recordedEntry) lock.Entry {
	t.Helper()
	ctx, key := timeout(t, time.Minute), string(r.Key)
	must.Entry(t)(s.Claim(ctx, key, r.claim()))
	switch r.End {
	case "settle":
		must.Yes(t)(s.Settle(ctx, key, r.claim(), []byte(r.Receipt), time.Hour))
	case "release":
		must.Yes(t)(s.Release(ctx, key, r.claim()))
	}
	return must.Entry(t)(s.Get(ctx, key))
}

// A receipt of then is replayed, and the same request leaves the same receipt now.
func TestRecordedAnswers(t *testing.T) {
	t.Parallel()
	for _, r := range readRecorded(t).Answers {
		t.Run(r.What, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			s := open(t, srv.URL(), redisstore.WithPrefix("rec:"))
			runs := 0
			guard := latch.Idempotent(lock.New(s, lock.WithBudget(patience), lock.WithLease(3*patience)), keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey, latch.WithBodyLimits(1<<20, 1<<10))
			handler := guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				runs++
				maps.Copy(w.Header(), r.AnswerHeader)
				answer := r.Answer
				if r.What == "too long to keep" {
					answer = strings.Repeat("x", 2000)
				}
				w.WriteHeader(r.Status)
				_, _ = w.Write([]byte(answer))
			}))
			ask := func() *httptest.ResponseRecorder {
				req := httptest.NewRequest(r.Method, r.Path, strings.NewReader(r.Body))
				req.Header = r.Header.Clone()
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, req)
				return w
			}
			require.Equal(t, r.Status, ask().Code)
			name, value := onlyEntry(t, srv)
			require.Equal(t, r.Name, name)
			then, now := recordedEntryOf(t, string(r.Value)), recordedEntryOf(t, value)
			require.Equal(t, then.Fingerprint, now.Fingerprint)
			require.ElementsMatch(t, then.Receipt, now.Receipt, "headers are in any order")

			srv.Do(t, "SET", r.Name, string(r.Value), "KEEPTTL")
			repeat := ask()
			require.Equal(t, 1, runs)
			if r.What == "too long to keep" {
				require.Equal(t, http.StatusConflict, repeat.Code)
				return
			}
			require.Equal(t, r.Status, repeat.Code)
			require.Equal(t, r.Answer, repeat.Body.String())
			for header, values := range r.AnswerHeader {
				require.Equal(t, values, repeat.Header()[header], header)
			}
		})
	}
}

func recordedEntryOf(t *testing.T, raw string) lock.Entry {
	t.Helper()
	v := must.Get(entry.Decode(raw))(t)
	return v.Entry(-1)
}

func onlyEntry(t *testing.T, srv *redistest.Server) (name, value string) {
	t.Helper()
	names, _ := srv.Do(t, "KEYS", "*").([]any)
	require.Len(t, names, 1)
	name, _ = names[0].(string)
	value, _ = srv.Do(t, "GET", name).(string)
	return name, value
}

// withoutFence is value without its sixteen digits of a fence.
func withoutFence(value string) string {
	fence := 3 + int(value[2]) + 13
	return value[:fence] + value[fence+16:]
}
