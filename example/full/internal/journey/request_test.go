package journey_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// intent is something that a caller wants once.
type intent struct {
	user string // has no other
	id   string // of the order to pay
	work string // how long the desk takes for it; "" for as long as for others
}

func (i intent) key() string { return "key-of-" + i.user }

// request is the request of a client for an intent, sent as often as necessary.
type request struct {
	path, key, body string
	header          []string // names and values
}

// to makes a request for net/http, without its key.
func (r request) to(ctx context.Context, url string) (*http.Request, error) {
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+r.path, body)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(r.header); i += 2 {
		req.Header.Set(r.header[i], r.header[i+1])
	}
	return req, nil
}

// answer is the answer that a caller gets.
type answer struct {
	status         int
	location, body string
	replayed       bool
}

func (a answer) String() string { return fmt.Sprintf("%d %s %s", a.status, a.location, a.body) }

// same reports whether a is the answer b, at first or again.
func (a answer) same(b answer) bool {
	return a.status == b.status && a.location == b.location && a.body == b.body
}

// inProgress reports whether it is the refusal of a repeat that has met the first request.
func (a answer) inProgress() bool {
	return a.status == http.StatusConflict && strings.Contains(a.body, "#in-progress")
}

// read reads an answer to its end, unless err says that there is none.
func read(resp *http.Response, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Location"), string(body), resp.Header.Get("Idempotent-Replayed") == "true"}, err
}
