package middleware

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
)

// Problem is a refusal in the format of RFC 9457. It is an [http.Handler] that sends itself as
// application/problem+json, or as a [Page] to a client that prefers a page. The function of
// [WithErrorHandler] can send another answer, or call the handler.
type Problem struct {
	Status     int           // 400 to 599
	Type       string        // a URI that is stable per case and leads to its description; "": none beyond the status
	Title      string        // a fixed sentence per type
	Detail     string        // more exactly, such as the name of the missing header; "": nothing to add
	RetryAfter time.Duration // 0: no Retry-After
	Header     http.Header   // sent in addition, except headers that the problem sets itself or that frame the body; of a [keyfunc.Error], or nil
	Err        error         // the cause, for logs and errors.Is; never sent

	once bool // the refusing guard processes the request once, however often it is sent
}

// ServeHTTP sends p: the status, Latch-Problem ([Problem.Respond]), Cache-Control, Vary, Retry-After if there is one,
// Header, and as the body the members type, title, detail and status, or the [Page] if r prefers text/html
// ([Problem.Page]). A status outside of 400 to 599 is sent as 500.
func (p *Problem) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if page, ok := p.Page(r); ok {
		page.ServeHTTP(w, r)
		return
	}
	body, _ := json.Marshal(struct { //nolint:errchkjson // texts and a number have no error
		Type   string `json:"type,omitempty"`
		Title  string `json:"title,omitempty"`
		Detail string `json:"detail,omitempty"`
		Status int    `json:"status"`
	}{inUTF8(p.Type), inUTF8(p.Title), inUTF8(p.Detail), p.status()})
	p.send(w, r, "application/problem+json", append(body, '\n'))
}

// inUTF8 replaces each byte of s that is not UTF-8. Go 1.26 would escape the replacement, and Go 1.27 would not.
func inUTF8(s string) string { return string([]rune(s)) }

// send sends p with this body, which a HEAD request does not get.
func (p *Problem) send(w http.ResponseWriter, r *http.Request, contentType string, body []byte) {
	h := w.Header()
	p.writeHeader(h)
	if !slices.Contains(h["Vary"], "Accept") {
		h["Vary"] = append(slices.Clip(h["Vary"]), "Accept")
	}
	h["Content-Type"] = []string{contentType}
	w.WriteHeader(p.status())
	if r != nil && r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(body) //nolint:gosec // JSON, or a page whose texts and fields are escaped
}

// markOfOthers is the Latch-Problem of a refusal without a kind.
const markOfOthers = "refused"

// mark returns the Latch-Problem of p, "" if p may be an answer of the application.
func (p *Problem) mark() string {
	kind := string(p.Kind())
	if _, is := errors.AsType[*keyfunc.Error](p.Err); is && kind == "" {
		return markOfOthers
	}
	return kind
}

func (p *Problem) status() int {
	if p.Status < 400 || p.Status > 599 {
		return http.StatusInternalServerError
	}
	return p.Status
}

// writeHeader sets the headers that every answer to p needs, whichever function writes its body.
func (p *Problem) writeHeader(h http.Header) {
	for name, values := range p.Header {
		switch name = http.CanonicalHeaderKey(name); name {
		case "Content-Length", "Transfer-Encoding": // they describe another body
		default:
			h[name] = slices.Clone(values)
		}
	}
	if mark := p.mark(); mark != "" {
		h[record.ProblemHeader] = []string{mark}
	}
	h["Cache-Control"] = []string{"no-store"}
	if errors.Is(p.Err, lock.ErrClosed) {
		// The client's next request has to go to a process that is not shutting down.
		h["Connection"] = []string{"close"}
	}
	if p.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(p.retrySeconds(), 10)}
	}
}

// retrySeconds is RetryAfter in seconds, rounded up: a client that repeats too early is refused again.
func (p *Problem) retrySeconds() int64 { return int64((p.RetryAfter + time.Second - 1) / time.Second) }
