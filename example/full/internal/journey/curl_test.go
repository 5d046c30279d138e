package journey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const curlFlags = "--retry 4 --retry-all-errors --retry-max-time 60"

// curl runs the program as docs/clients.md does: up to five times, with pauses, until there
// is a body that is not the refusal of a repeat that has met the first request.
func curl(t *testing.T, base *http.Transport) send {
	t.Helper()
	run := runCurl(t, base)
	return func(ctx context.Context, url string, r request) (got answer, err error) {
		for range 5 {
			if got, err = run(ctx, url, r); err == nil && got.body != "" && !got.inProgress() {
				break
			}
			pause := time.NewTimer(time.Second)
			select {
			case <-pause.C:
			case <-ctx.Done():
				return got, ctx.Err()
			}
		}
		return got, err
	}
}

// runCurl runs the program once. It writes the answer to a file: what an attempt has
// written to its standard output is not taken back when it is repeated.
func runCurl(t *testing.T, _ *http.Transport) send {
	t.Helper()
	path, dir := findCurl(t), t.TempDir()
	return func(ctx context.Context, url string, r request) (answer, error) {
		file := filepath.Join(dir, r.key)
		// Neither the settings nor the proxies of the one who runs the test.
		args := append([]string{"--disable", "--noproxy", "*", "--no-progress-meter"}, strings.Fields(curlFlags)...)
		args = append(args, "--request", http.MethodPost, "--header", "Idempotency-Key: "+r.key)
		for i := 0; i < len(r.header); i += 2 {
			args = append(args, "--header", r.header[i]+": "+r.header[i+1])
		}
		if r.body != "" {
			args = append(args, "--data", r.body)
		}
		args = append(args, "--output", file, "--write-out", "%{http_code} %header{location}", url+r.path)
		out, err := exec.CommandContext(ctx, path, args...).Output()
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		status, location, _ := strings.Cut(string(out), " ")
		got := answer{location: location}
		if got.status, _ = strconv.Atoi(status); err != nil {
			return got, err
		}
		body, err := os.ReadFile(file)
		got.body = string(body)
		return got, err
	}
}

func findCurl(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("curl")
	if err != nil {
		testmain.Unavailable(t, "no curl: what it does when its connection is cut is not shown", err)
	}
	return path
}

// TestCurlOfThePage: the commands of docs/clients.md, with the desk in place of the shop, end
// with the answer, which was cut off in its header.
func TestCurlOfThePage(t *testing.T) {
	t.Parallel()
	findCurl(t)
	_, script, found := strings.Cut(textOf(t, "../../../../docs/clients.md"), "## curl\n\n```sh\n")
	require.True(t, found)
	script, _, _ = strings.Cut(script, "```")
	d := startDesk(t)
	p := cutproxy.Start(t, d.url)
	i := intent{user: "reader"}
	script = strings.NewReplacer(
		"$(uuidgen)", i.key(), "https://shop.example", p.URL(),
		`-d '{"sku":"tea"}'`, `-H "X-User-ID: reader" -d '{"sku":"tea","quantity":1}'`,
	).Replace(script)
	require.Contains(t, script, "curl "+curlFlags+" -o")
	p.Cut(cutproxy.Response, 60)
	run := exec.Command("sh", "-c", script)
	run.Dir = t.TempDir()
	run.Env = append(os.Environ(), "CURL_HOME="+run.Dir, "HOME="+run.Dir, "no_proxy=*")
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.False(t, p.Waiting())
	n, first, err := ordersOf(t.Context(), d, i)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	got, err := os.ReadFile(filepath.Join(run.Dir, "answer.json"))
	require.NoError(t, err)
	require.Equal(t, first.body, string(got))
}
