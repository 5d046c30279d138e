package proxies_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// request is an order. Its key is its only identity.
type request struct{ url, key, work string }

func (r request) body() string { return "tea " + r.key }

// word is the last answer to a request that a client shows to its caller.
type word struct {
	status int // 0: there is none
	text   string
}

// sender is a client that repeats requests.
type sender struct {
	name string
	send func(ctx context.Context, r request) word
}

// senders starts all clients. The clients in other languages are processes that end with t.
func senders(t *testing.T) []sender {
	t.Helper()
	return []sender{
		{"curl --retry", startCurl(t)},
		{"urllib3", startScript(t, findPython(t), "with_urllib3.py", "testdata")},
		{"undici", startScript(t, findNode(t), "with_undici.mjs", nodeModules(t))},
		{"got", startScript(t, findNode(t), "with_got.mjs", nodeModules(t))},
		{"go-retryablehttp", retryable(t, func(*retryablehttp.Client) {})},
		{"go-retryablehttp, client.CheckRetry", retryable(t, func(c *retryablehttp.Client) {
			c.CheckRetry, c.Backoff, c.RetryMax = client.CheckRetry, client.Backoff, 20
		})},
		{"client.Transport", transport(t)},
	}
}

// transport has the budget of a client that repeats all of its requests.
func transport(t *testing.T) func(ctx context.Context, r request) word {
	t.Helper()
	c := &http.Client{Transport: client.Transport(newBase(t), client.WithAttempts(10), client.WithBudget(10, 1000))}
	return func(ctx context.Context, r request) word { return r.do(client.WithKey(ctx, r.key), c.Do) }
}

func newBase(t *testing.T) *http.Transport {
	t.Helper()
	base := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

func retryable(t *testing.T, set func(c *retryablehttp.Client)) func(ctx context.Context, r request) word {
	t.Helper()
	c := retryablehttp.NewClient()
	c.HTTPClient, c.Logger, c.RetryMax = &http.Client{Transport: newBase(t)}, nil, 6
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	set(c)
	return func(ctx context.Context, r request) word {
		return r.do(client.WithKey(ctx, r.key), func(req *http.Request) (*http.Response, error) {
			req.Header.Set("Idempotency-Key", r.key)
			again, err := retryablehttp.FromRequest(req)
			if err != nil {
				return nil, err
			}
			return c.Do(again)
		})
	}
}

func (r request) do(ctx context.Context, do func(*http.Request) (*http.Response, error)) word {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, strings.NewReader(r.body()))
	if err != nil {
		return word{0, err.Error()}
	}
	req.Header.Set("Content-Type", "text/plain")
	req.Header.Set("X-Work", r.work)
	resp, err := do(req)
	if err != nil {
		return word{0, err.Error()}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return word{0, err.Error()}
	}
	return word{resp.StatusCode, string(text)}
}

func startCurl(t *testing.T) func(ctx context.Context, r request) word {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		testmain.Unavailable(t, noClients, err)
	}
	dir := t.TempDir()
	return func(ctx context.Context, r request) word {
		file := filepath.Join(dir, r.key)
		out, err := exec.CommandContext(ctx, path, "--disable", "--noproxy", "*", "--no-progress-meter",
			"--retry", "6", "--retry-all-errors", "--output", file, "--write-out", "%{http_code}",
			"--header", "Idempotency-Key: "+r.key, "--header", "X-Work: "+r.work, "--header", "Content-Type: text/plain",
			"--data", r.body(), r.url).Output()
		if err != nil {
			return word{0, err.Error()}
		}
		status, _ := strconv.Atoi(string(out))
		text, _ := os.ReadFile(file) // none: an empty answer
		return word{status, string(text)}
	}
}

const noClients = `this test needs clients in other languages.
Install them (apt-get install curl python3-urllib3 nodejs npm), and let npm reach its registry.`

// findPython finds the first Python that has urllib3. The system's own may be hidden by another.
func findPython(t *testing.T) string {
	t.Helper()
	var err error
	for _, path := range []string{"python3", "/usr/bin/python3"} {
		if err = exec.Command(path, "-c", "import urllib3").Run(); err == nil {
			return path
		}
	}
	testmain.Unavailable(t, noClients, err)
	return ""
}

func findNode(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		testmain.Unavailable(t, noClients, err)
	}
	return path
}

var installing sync.Mutex

// nodeModules returns a directory with the scripts of testdata and the packages of its lock file,
// which are downloaded once, into the user's cache.
func nodeModules(t *testing.T) string {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	lockFile, err := os.ReadFile("testdata/package-lock.json")
	require.NoError(t, err)
	packages := filepath.Join(cache, "httplatch-tests", fmt.Sprintf("node-%x", hash(lockFile)))
	if _, err := os.Stat(packages); err != nil {
		install(t, packages)
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata")))
	require.NoError(t, os.Symlink(filepath.Join(packages, "node_modules"), filepath.Join(dir, "node_modules")))
	return dir
}

// install has npm install the packages, and moves them to their place, where another process may
// have put them meanwhile.
func install(t *testing.T, packages string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(packages), 0o750))
	into, err := os.MkdirTemp(filepath.Dir(packages), "install") //nolint:usetesting // on the file system of their place
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(into) }()
	require.NoError(t, os.CopyFS(into, os.DirFS("testdata")))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = into
	if out, err := npm.CombinedOutput(); err != nil {
		testmain.Unavailable(t, noClients, fmt.Errorf("npm ci: %w\n%s", err, out))
	}
	if err := os.Rename(into, packages); err != nil {
		require.DirExists(t, packages, err)
	}
}

// script is a client in another language. It has many requests in flight.
type script struct {
	in io.Writer

	mu    sync.Mutex
	words map[string]chan word // by key
}

func startScript(t *testing.T, program, name, dir string) func(ctx context.Context, r request) word {
	t.Helper()
	cmd := exec.Command(program, filepath.Join(dir, name))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "no_proxy=*")
	require.NoError(t, cmd.Start())
	s := &script{in: in, words: map[string]chan word{}}
	read := make(chan struct{})
	go func() { defer close(read); s.read(out) }()
	t.Cleanup(func() {
		_ = in.Close()
		tooLong := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer tooLong.Stop()
		<-read
		require.NoError(t, cmd.Wait(), name)
	})
	return s.send
}

func (s *script) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		key, rest, _ := strings.Cut(lines.Text(), "\t")
		status, text, _ := strings.Cut(rest, "\t")
		var w word
		w.status, _ = strconv.Atoi(status)
		w.text = text
		s.mu.Lock()
		answered := s.words[key]
		delete(s.words, key)
		s.mu.Unlock()
		if answered != nil {
			answered <- w
		}
	}
}

func (s *script) send(ctx context.Context, r request) word {
	answered := make(chan word, 1)
	s.mu.Lock()
	s.words[r.key] = answered
	_, err := fmt.Fprintf(s.in, "%s\t%s\t%s\t%s\n", r.url, r.key, r.body(), r.work)
	s.mu.Unlock()
	if err != nil {
		return word{0, err.Error()}
	}
	select {
	case w := <-answered:
		return w
	case <-ctx.Done():
		return word{0, ctx.Err().Error()}
	}
}
