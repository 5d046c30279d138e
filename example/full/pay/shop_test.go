package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	main "github.com/httplatch/httplatch/example/full/pay"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock/memstore"
)

const keySecret = "of a test, 16 bytes or more"

// TestMain is the program itself in the processes that the tests start.
func TestMain(m *testing.M) {
	if os.Getenv("PAY_IS_A_CHILD") != "" {
		main.Main()
		return
	}
	os.Exit(m.Run())
}

// services are the services of the shop. Each runs a key once, and answers it again with its first answer.
type services struct {
	*httptest.Server

	mu       sync.Mutex
	answers  map[string]int // status by call and key
	effects  map[string]int // by call
	requests map[string]int // by call
	refuses  []string       // calls that are refused

	loses func(call string, n int) bool       // the reply to the n-th request
	stops func(call string, n int, at string) // may end the shop, before and after the effect
}

func newServices(t *testing.T) *services {
	t.Helper()
	s := &services{answers: map[string]int{}, effects: map[string]int{}, requests: map[string]int{}}
	s.loses = func(string, int) bool { return false }
	s.stops = func(string, int, string) {}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *services) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	about, _ := io.ReadAll(r.Body)
	call := strings.TrimPrefix(r.URL.Path, "/")
	s.requests[call]++
	n := s.requests[call]
	s.stops(call, n, "before")
	key := fmt.Sprintf("%s of %q under %q", call, about, r.Header.Get("Idempotency-Key"))
	if s.answers[key] == 0 {
		s.answers[key] = http.StatusOK
		if slices.Contains(s.refuses, call) {
			s.answers[key] = http.StatusUnprocessableEntity
		} else {
			s.effects[call]++
		}
	}
	s.stops(call, n, "after")
	if s.loses(call, n) {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(s.answers[key])
	_, _ = io.WriteString(w, call+"-1")
}

// do calls f, and no request is served meanwhile.
func (s *services) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *services) counts() (effects, requests map[string]int) {
	s.do(func() { effects, requests = maps.Clone(s.effects), maps.Clone(s.requests) })
	return effects, requests
}

func openShop(t *testing.T) (*services, http.Handler) {
	t.Helper()
	s := newServices(t)
	return s, main.NewShop(guardtest.NewLocker(t, memstore.New()), s.URL, []byte(keySecret))
}

func order(h http.Handler) *httptest.ResponseRecorder {
	return guardtest.Serve(h, guardtest.Keyed("k"))
}

func firstOf(_ string, n int) bool { return n == 1 }

// Each service has one effect, and every repeat after the answer gets it.
func TestRepliesAreLost(t *testing.T) {
	t.Parallel()
	s, h := openShop(t)
	s.loses = firstOf
	for _, status := range []int{503, 503, 503, 201, 201} {
		require.Equal(t, status, order(h).Code)
	}
	effects, requests := s.counts()
	require.Equal(t, map[string]int{"reserve": 1, "charge": 1, "courier": 1}, effects)
	require.Equal(t, map[string]int{"reserve": 2, "charge": 2, "courier": 2}, requests)
}

// Charged, sold out at the courier, refunded, and the reply to each call is lost. Then it is restocked: the courier
// would say yes, under the old key too. The repeats decide as the first attempt did. A 201 would be for an order that is
// not paid.
func TestRefundedAndRestocked(t *testing.T) {
	t.Parallel()
	s, h := openShop(t)
	s.refuses, s.loses = []string{"courier"}, firstOf
	for _, status := range []int{503, 503, 503, 503} { // reserved, charged, sold out, refunded
		require.Equal(t, status, order(h).Code)
	}
	s.do(func() {
		s.refuses = nil
		maps.DeleteFunc(s.answers, func(key string, _ int) bool { return strings.HasPrefix(key, "courier") })
	})
	require.Equal(t, http.StatusServiceUnavailable, order(h).Code, "the reply to the release is lost")
	for range 2 {
		w := order(h)
		require.Equal(t, http.StatusConflict, w.Code)
		require.Equal(t, "not placed, and nothing was charged\n", w.Body.String())
	}
	effects, requests := s.counts()
	require.Equal(t, map[string]int{"reserve": 1, "charge": 1, "refund": 1, "release": 1}, effects)
	require.Equal(t, map[string]int{"reserve": 2, "charge": 2, "courier": 2, "refund": 2, "release": 2}, requests)
}

// What was done before a refusal is undone, and nothing else is. The answer does not say that nothing was charged if
// the refund is refused.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuses []string
		effects map[string]int
		says    string
	}{
		"reserve":            {[]string{"reserve"}, map[string]int{}, "nothing was charged"},
		"charge":             {[]string{"charge"}, map[string]int{"reserve": 1, "release": 1}, "nothing was charged"},
		"courier":            {[]string{"courier"}, map[string]int{"reserve": 1, "charge": 1, "refund": 1, "release": 1}, "nothing was charged"},
		"courier and refund": {[]string{"courier", "refund"}, map[string]int{"reserve": 1, "charge": 1, "release": 1}, "and charged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, h := openShop(t)
			s.refuses = c.refuses
			for range 2 {
				w := order(h)
				require.Equal(t, http.StatusConflict, w.Code)
				require.Contains(t, w.Body.String(), c.says)
			}
			effects, _ := s.counts()
			require.Equal(t, c.effects, effects)
		})
	}
}

func startPay(t *testing.T, services, file string) (url string, process *exec.Cmd) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-addr", "127.0.0.1:0", "-services", services, "-file", file, "-lease", "1s")
	cmd.Env = append(os.Environ(), "PAY_IS_A_CHILD=1", "KEY_SECRET="+keySecret)
	cmd.Stderr = os.Stderr
	stdout := must.Get(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line := must.Get(bufio.NewReader(stdout).ReadString('\n'))(t)
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), cmd
}

// The process is killed before and after the effect of each call. The next process goes on.
func TestKilledInEachCall(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "kills processes, and waits for their leases")
	t.Parallel()
	s := newServices(t)
	file := filepath.Join(t.TempDir(), "pay.db")
	var process *exec.Cmd
	kills := 0
	s.stops = func(_ string, n int, at string) {
		if n == 1 && at == "before" || n == 2 && at == "after" {
			kills++
			_ = process.Process.Kill()
			_, _ = process.Process.Wait()
		}
	}
	for tries := 1; ; tries++ {
		require.Less(t, tries, 10)
		url, next := startPay(t, s.URL, file)
		s.do(func() { process = next })
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/orders", http.NoBody))(t)
		req.Header.Set("X-User-ID", "42")
		req.Header.Set("Idempotency-Key", "k")
		resp, err := s.Client().Do(req)
		if err != nil { // killed
			require.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), err)
			continue
		}
		parcel := must.Get(io.ReadAll(resp.Body))(t)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusCreated, resp.StatusCode)
		require.Equal(t, "courier-1\n", string(parcel))
		break
	}
	effects, requests := s.counts()
	require.Equal(t, 6, kills)
	require.Equal(t, map[string]int{"reserve": 1, "charge": 1, "courier": 1}, effects)
	require.Equal(t, map[string]int{"reserve": 3, "charge": 3, "courier": 3}, requests)
}
