package journey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
)

// way is from one client to the desk.
type way struct {
	row

	proxy *cutproxy.Proxy
	base  *http.Transport
	send  send
}

func (r row) open(t *testing.T) *way {
	t.Helper()
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	return &way{r, cutproxy.Start(t, r.desk.url), base, r.new(t, base)}
}

// users counts intents, so that each has a user and a key of its own, of equal length.
var users atomic.Int64

// intent prepares one over a connection that was used before or is new.
func (w *way) intent(ctx context.Context, used bool) (intent, error) {
	i := intent{user: fmt.Sprintf("user-%07d", users.Add(1)), work: w.work}
	if w.prepare != nil {
		if err := w.prepare(ctx, w.desk, &i); err != nil {
			return i, err
		}
	}
	w.base.CloseIdleConnections()
	if !used {
		return i, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.proxy.URL()+"/healthz", nil)
	if err != nil {
		return i, err
	}
	_, err = read(w.base.RoundTrip(req))
	return i, err
}

// cut sends one intent whose connection is cut, and looks what became of it.
func (w *way) cut(ctx context.Context, c cut) (figures, error) {
	i, err := w.intent(ctx, c.used)
	if err != nil {
		return figures{}, err
	}
	w.proxy.Cut(c.dir, c.after)
	got, failed := w.send(ctx, w.proxy.URL(), w.request(i))
	if w.proxy.Waiting() {
		return figures{}, errors.Join(fmt.Errorf("it was not cut: %v", got), failed)
	}
	var last answer
	if w.promised {
		if last, err = w.last(ctx, i); err != nil {
			return figures{}, fmt.Errorf("a repeat afterwards: %w", err)
		}
	}
	n, first, err := w.effects(ctx, w.desk, i)
	if err != nil {
		return figures{}, err
	}
	var f figures
	if c.lost() {
		f.lost = 1
	}
	switch {
	case n == 0:
		f.missing = 1
	case n > 1:
		f.doubled = 1
	}
	if n > 0 && failed == nil && got.same(first) {
		f.first = 1
	}
	if n > 0 && got.status == http.StatusConflict && last.replayed == w.promised {
		f.shown = 1
	}
	switch {
	case !w.promised:
		return f, nil
	case !last.replayed:
		return f, errors.Join(fmt.Errorf("the answer to a repeat, %v, is no replay; the caller got %v", last, got), failed)
	case n != 1 || !last.same(first):
		return f, fmt.Errorf("%d effects; the answer to a repeat is %v, not %v", n, last, first)
	case failed != nil:
		return f, fmt.Errorf("the caller got %v: %w", got, failed)
	case f.first == 1, w.mistaken && c.lost() && c.inHeader() && got.body == "":
		return f, nil
	default:
		return f, fmt.Errorf("the caller got %v, not %v", got, first)
	}
}

// last sends the request once more, straight to the desk, until no other run with the key is
// under way.
func (w *way) last(ctx context.Context, i intent) (answer, error) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range 3000 {
		got, err := w.desk.send(ctx, w.request(i))
		if err != nil || !got.inProgress() {
			return got, err
		}
		<-look.C
	}
	return answer{}, errors.New("the first run does not end")
}
