package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// Three guards: the refusal of the innermost must not be kept by the outermost.
func TestRegressionRefusalMarksAllOuterGuards(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	var e effects
	h := latch.Dedupe(l, byUser, time.Hour)(once(l)(latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer))))
	lease, err := l.Acquire(t.Context(), lock.Key("user", "42"))
	require.NoError(t, err)
	require.Equal(t, 409, serve(h, keyed("k")).Code)
	require.NoError(t, lease.Release(t.Context()))
	w := serve(h, keyed("k"))
	require.Equal(t, 201, w.Code, "%v %s", w.Header(), w.Body)
}

// R1b: refused by Idempotent in the middle (in-progress), kept by the outermost.
func TestRegressionRefusalMarksAllOuterGuards2(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	var e effects
	a := latch.Idempotent(l, keyfunc.Global, keyfunc.Header("X-A"))
	b := latch.Idempotent(l, keyfunc.Global, keyfunc.Header("X-B"))
	h := a(b(latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer))))
	hold(t, l)
	req := func() *http.Request {
		r := httptest.NewRequest("POST", "/orders", strings.NewReader("x"))
		r.Header.Set("X-A", "1")
		r.Header.Set("X-B", "1")
		r.Header.Set("X-User-ID", "42")
		return r
	}
	w := serve(h, req())
	require.Equal(t, 409, w.Code)
	w = serve(h, req())
	require.Empty(t, w.Header().Get("Idempotent-Replayed"), "%v %s", w.Header(), w.Body)
}

// Temp files of a multipart upload behind Lock.
func TestRegressionMultipartTempFiles(t *testing.T) {
	for _, guarded := range []string{"bare", "lock", "idempotent"} {
		t.Run(guarded, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			l := newLocker(t, lock.NewMemory())
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := r.ParseMultipartForm(1 << 10); err != nil {
					http.Error(w, err.Error(), 500)
				}
			})
			switch guarded {
			case "lock":
				h = latch.Lock(l, "u", keyfunc.Global)(h)
			case "idempotent":
				h = latch.Idempotent(l, keyfunc.Global, keyfunc.Global)(h)
			}
			s := httptest.NewServer(h)
			defer s.Close()
			var b bytes.Buffer
			m := multipart.NewWriter(&b)
			f, _ := m.CreateFormFile("f", "f")
			_, _ = f.Write(make([]byte, 200<<10))
			_ = m.Close()
			resp, err := http.Post(s.URL, m.FormDataContentType(), &b)
			require.NoError(t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			require.Equal(t, 200, resp.StatusCode)
			s.Close()
			left, _ := os.ReadDir(dir)
			require.Empty(t, left)
		})
	}
}

// 304 with Content-Length.
func TestRegression304ContentLength(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	s := httptest.NewServer(once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1234")
		w.WriteHeader(304)
	})))
	defer s.Close()
	var got []string
	for range 2 {
		r := keyed("k")
		r.RequestURI = ""
		r.URL, _ = r.URL.Parse(s.URL + "/orders")
		resp, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		resp.Body.Close()
		got = append(got, fmt.Sprint(resp.StatusCode, resp.Header["Content-Length"]))
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	require.Equal(t, got[0], got[1])
}

// An optional part of the fingerprint takes the whole protection away.
func TestRegressionFingerprintSkip(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	var e effects
	h := once(l, latch.WithFingerprint(keyfunc.Join(keyfunc.JSON("/a"), keyfunc.Optional(keyfunc.JSON("/b")))))(http.HandlerFunc(e.answer))
	for range 3 {
		serve(h, keyedBody("k", `{"a":"1"}`))
	}
	e.require(t, 1)
}

// Handler panics after the outer has recorded headers etc.
func TestRegressionAbortHandler(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	var n atomic.Int64
	s := httptest.NewServer(once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("X", "y")
		_, _ = io.WriteString(w, "part")
		panic(http.ErrAbortHandler)
	})))
	defer s.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for range 2 {
		r := keyed("k")
		r.RequestURI = ""
		r.URL, _ = r.URL.Parse(s.URL + "/orders")
		res, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			_ = res.Body.Close()
		}
		require.Error(t, err)
	}
	require.EqualValues(t, 2, n.Load())
}

// Huge header map in the record.
func TestRegressionHugeHeaders(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	var e effects
	h := once(l)(e.then(func(w http.ResponseWriter, _ *http.Request) {
		for i := range 20000 {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("v", 1000))
		}
		w.WriteHeader(201)
	}))
	require.Equal(t, 201, serve(h, keyed("k")).Code)
	w := serve(h, keyed("k"))
	t.Log(w.Code, len(w.Header()))
	e.require(t, 1)
	var kept int64
	for _, v := range w.Header() {
		kept += int64(len(v[0]))
	}
	require.Less(t, kept, int64(2<<20), "WithBodyLimits does not bound what is kept")
}

// An error handler that panics leaves nothing.
func TestRegressionErrorHandlerPanics(t *testing.T) {
	store := lock.NewMemory()
	l := newLocker(t, store)
	var e effects
	boom := latch.WithErrorHandler(func(http.ResponseWriter, *http.Request, *latch.Problem) { panic("boom") })
	h := once(l, boom)(latch.Lock(l, "user", byUser, boom)(http.HandlerFunc(e.answer)))
	lease, err := l.Acquire(t.Context(), lock.Key("user", "42"))
	require.NoError(t, err)
	require.PanicsWithValue(t, "boom", func() { serve(h, keyed("k")) })
	require.NoError(t, lease.Release(t.Context()))
	require.Equal(t, 201, serve(h, keyed("k")).Code)
	e.require(t, 1)
}

// Keep the writer, write after return.
func TestRegressionWriteAfterReturn(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	var keep http.ResponseWriter
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(201)
		_, _ = io.WriteString(w, "first")
		keep = w
	}))
	require.Equal(t, "first", serve(h, keyed("k")).Body.String())
	_, _ = io.WriteString(keep, "AFTER")
	keep.Header().Set("Location", "/evil")
	w := serve(h, keyed("k"))
	require.Equal(t, "first", w.Body.String())
	require.Empty(t, w.Header().Get("Location"))
}

// Fail open must not run the handler twice if it ran.
func TestRegressionFailOpenRunsOnce(t *testing.T) {
	mem := lock.NewMemory()
	s := &stubStore{Store: mem}
	l := newLocker(t, s, lock.WithBudget(50*time.Millisecond), lock.WithLease(time.Second), lock.WithLogger(quiet))
	var e effects
	h := once(l, latch.WithFailOpen())(e.then(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
	}))
	s.claim = func(context.Context, string, lock.Claim) (lock.Entry, error) {
		return lock.Entry{}, errors.New("down")
	}
	require.Equal(t, 500, serve(h, keyed("k")).Code)
	e.require(t, 1)
}

// Appended header of outer middleware.
func TestRegressionAppendedOuterHeader(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	inner := once(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Link", "</a>")
		w.WriteHeader(201)
	}))
	n := 0
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n++
		w.Header().Set("Link", fmt.Sprintf("</request-%d>", n))
		inner.ServeHTTP(w, r)
	})
	require.Equal(t, []string{"</request-1>", "</a>"}, serve(h, keyed("k")).Header()["Link"])
	require.Equal(t, []string{"</request-2>", "</a>"}, serve(h, keyed("k")).Header()["Link"])
}

// Epilogue/type of multipart, custom part headers.
func TestRegressionMultipartFingerprint(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	var e effects
	h := once(l)(http.HandlerFunc(e.answer))
	req := func(ct, part, tail string) *http.Request {
		r := keyedBody("k", "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n"+part+"\r\nv\r\n--b--\r\n"+tail)
		r.Header.Set("Content-Type", ct)
		return r
	}
	require.Equal(t, 201, serve(h, req("multipart/form-data; boundary=b", "", "")).Code)
	for name, r := range map[string]*http.Request{
		"type":     req("multipart/mixed; boundary=b", "", ""),
		"header":   req("multipart/form-data; boundary=b", "X-Amount: 100\r\n", ""),
		"epilogue": req("multipart/form-data; boundary=b", "", "amount=100"),
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, 422, serve(h, r).Code) })
	}
}

// Path spelled differently, Location of tombstone etc.
func TestRegressionEscapedPath(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	var e effects
	h := once(l)(http.HandlerFunc(e.answer))
	a, b := keyed("k"), keyed("k")
	a.URL, _ = a.URL.Parse("http://x/orders/a%2Fb/pay")
	b.URL, _ = b.URL.Parse("http://x/orders/a/b/pay")
	require.Equal(t, 201, serve(h, a).Code)
	require.Equal(t, 201, serve(h, b).Code, "another path is another request")
}

// In re-run mode, what was committed is never run again, whichever process vanished.
func TestRegressionCommitThenCrashInRerunMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := lock.NewMemory()
		s := &mortalStore{Store: mem}
		opts := []lock.Option{lock.WithLogger(quiet), lock.WithRerunAbandoned()}
		dying := lock.New(s, opts...)
		out := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			serve(once(dying)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_ = lock.Commit(r.Context())
				<-out
			})), keyed("k"))
		}()
		synctest.Wait()
		s.dead.Store(true)
		defer func() { s.dead.Store(false); close(out); <-done; end(dying) }()
		time.Sleep(time.Minute) // two leases later
		l := newLocker(t, mem, opts...)
		w := serve(once(l)(mustNotRun(t)), keyed("k"))
		require.Equal(t, http.StatusConflict, w.Code)
	})
}

// A guard around a panicking WithFinal / key function.
func TestRegressionFinalPanics(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	var e effects
	h := once(l, latch.WithFinal(func(int) bool { panic("final") }))(http.HandlerFunc(e.answer))
	require.Panics(t, func() { serve(h, keyed("k")) })
	require.Panics(t, func() { serve(h, keyed("k")) })
	e.require(t, 2)
}

// Concurrent refusals by the inner guard in a batch handler; flush after refusal.
func TestRegressionInnerRefusalSwallowed(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	hold(t, l)
	var e effects
	inner := latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer))
	h := once(l)(e.then(func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		inner.ServeHTTP(rec, r) // one of several steps; a batch reports it in its own answer
		w.WriteHeader(207)
	}))
	require.Equal(t, 207, serve(h, keyed("k")).Code)
	require.Equal(t, 207, serve(h, keyed("k")).Code)
	e.require(t, 1)
}

// Write from a second goroutine of http.ResponseController.
func TestRegressionTrailers(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	var e effects
	s := httptest.NewServer(once(l)(e.then(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["trailer"] = []string{"X-T"} // net/http looks at the canonical name only
		w.Header().Set("Trailer", "X-T")
		w.WriteHeader(200)
		_, _ = io.WriteString(w, "b")
		w.Header().Set("X-T", "1")
	})))
	defer s.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for i := range 2 {
		r := keyed("k")
		r.RequestURI = ""
		r.URL, _ = r.URL.Parse(s.URL + "/orders")
		resp, err := http.DefaultTransport.RoundTrip(r)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		t.Log(resp.StatusCode, resp.Header, resp.Trailer)
		if i == 0 {
			require.Equal(t, "1", resp.Trailer.Get("X-T"))
		}
	}
	e.require(t, 1)
}

// The same, with a double effect: the handler is refused once inside, tries
// again, succeeds and answers 201. The answer is thrown away.
func TestRegressionInnerRefusalRetried(t *testing.T) {
	l := newLocker(t, lock.NewMemory())
	lease, err := l.Acquire(t.Context(), lock.Key("user", "42"))
	require.NoError(t, err)
	var e effects
	inner := latch.Lock(l, "user", byUser)(http.HandlerFunc(e.answer))
	h := once(l)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			rec := httptest.NewRecorder()
			inner.ServeHTTP(rec, r)
			if rec.Code != 409 {
				w.WriteHeader(rec.Code)
				return
			}
			_ = lease.Release(r.Context())
		}
	}))
	require.Equal(t, 201, serve(h, keyed("k")).Code)
	require.Equal(t, 201, serve(h, keyed("k")).Code)
	e.require(t, 1)
}

// incapable loses the answer to the first claim, and then says that it cannot
// do what is asked of it.
type incapable struct {
	lock.Store
	claims atomic.Int64
}

func (s *incapable) Claim(context.Context, string, lock.Claim) (lock.Entry, error) {
	if s.claims.Add(1) == 1 {
		return lock.Entry{}, io.EOF
	}
	return lock.Entry{}, errors.ErrUnsupported
}

// A store that cannot do what is asked of it has answered: fail-open is for one
// that has not, also if an earlier answer was lost.
func TestRegressionFailOpenNeedsAStoreThatIsDown(t *testing.T) {
	for name, guard := range map[string]func(l *lock.Locker) http.Handler{
		"lock": func(l *lock.Locker) http.Handler {
			return latch.Lock(l, "user", keyfunc.Global, latch.WithFailOpen())(mustNotRun(t))
		},
		"idempotent": func(l *lock.Locker) http.Handler { return once(l, latch.WithFailOpen())(mustNotRun(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocker(t, &incapable{Store: lock.NewMemory()})
			require.Equal(t, http.StatusServiceUnavailable, serve(guard(l), keyed("k")).Code)
		})
	}
}
