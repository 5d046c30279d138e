package suite_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// BenchmarkKilled kills an order desk, a hundred times, while it works on an order, and
// measures how long its user has to wait for another desk. The oldest orders have gone longer than
// the first lease without a renewal.
func BenchmarkKilled(b *testing.B) {
	const oldest, atOnce = 3 * time.Second, 10
	kills := size(100, 2)
	k := newKilling(b)
	for half, kase := range []string{"an order of up to 1.5 s", "an order of 1.5 to 3 s"} {
		measure(b, 0, kase, "the order desk", func(b *testing.B) {
			freed, errs := make([]time.Duration, kills/2), make([]error, kills/2)
			turn := make(chan struct{}, atOnce)
			var all sync.WaitGroup
			for i := range freed {
				turn <- struct{}{}
				all.Go(func() {
					defer func() { <-turn }()
					n := half*kills/2 + i
					freed[i], errs[i] = k.kill(b.Context(), fmt.Sprint("user-", n), oldest*time.Duration(n+1)/time.Duration(kills))
				})
			}
			all.Wait()
			for _, err := range errs {
				require.NoError(b, err)
			}
			slices.Sort(freed)
			b.ReportMetric(freed[len(freed)/2].Seconds(), report.FreedP50)
			b.ReportMetric(freed[len(freed)-1].Seconds(), report.FreedMost)
		})
	}
}

type killing struct {
	program, redis string
	url            string // of the desk that is not killed
}

func newKilling(b *testing.B) *killing {
	b.Helper()
	k := &killing{program: filepath.Join(b.TempDir(), "desk"), redis: redistest.Start(b).URL()}
	build := exec.CommandContext(b.Context(), "go", "build", "-o", k.program, "./example/full")
	build.Dir, build.Env = "../../..", append(os.Environ(), "GOWORK=")
	out, err := build.CombinedOutput()
	require.NoError(b, err, "%s", out)
	survivor, err := k.desk(b.Context())
	require.NoError(b, err)
	b.Cleanup(survivor.kill)
	k.url = survivor.url
	return k
}

type desk struct {
	cmd *exec.Cmd
	url string
}

func (k *killing) desk(ctx context.Context) (*desk, error) {
	cmd := exec.CommandContext(ctx, k.program, "-addr", "127.0.0.1:0", "-redis", k.redis)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &desk{cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		d.kill()
		return nil, fmt.Errorf("the desk does not listen: %q, %w", line, err)
	}
	d.url = url
	return d, nil
}

func (d *desk) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// kill kills a desk that has worked on user's order for age, and returns how long the other
// one has refused the user.
func (k *killing) kill(ctx context.Context, user string, age time.Duration) (time.Duration, error) {
	const asksEvery, most = 50 * time.Millisecond, time.Minute
	d, err := k.desk(ctx)
	if err != nil {
		return 0, err
	}
	begun := time.AfterFunc(age, d.kill)
	defer begun.Stop()
	if status, err := placeOrder(ctx, d.url, user, 30*time.Second); err == nil {
		return 0, fmt.Errorf("the desk that was to be killed has answered %d", status)
	}
	killed := time.Now()
	for time.Since(killed) < most {
		status, err := placeOrder(ctx, k.url, user, time.Millisecond)
		switch {
		case err != nil:
			return 0, err
		case status == http.StatusCreated:
			return time.Since(killed), nil
		case status != http.StatusConflict:
			return 0, fmt.Errorf("the other desk has answered %d", status)
		}
		time.Sleep(asksEvery)
	}
	return 0, fmt.Errorf("%s was refused for %v", user, most)
}

func placeOrder(ctx context.Context, url, user string, work time.Duration) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", strings.NewReader(`{"sku":"tea","quantity":1}`))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-User-ID", user)
	r.Header.Set("X-Work", work.String())
	answer, err := new(http.Client).Do(r)
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}
