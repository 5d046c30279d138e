package middleware_test

import (
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var update = flag.Bool("update", false, "write the files of the tests TestGolden")

// chromiumAccept is the header of a browser that loads a page.
const chromiumAccept = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"

func submission(body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(body))
	r.Header.Set("X-User-ID", "42")
	r.Header.Set("Content-Type", urlencoded)
	r.Header.Set("Accept", chromiumAccept)
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

func byParts(submission func(body string) *http.Request) *http.Request {
	r := submission("--b\r\nContent-Disposition: form-data; name=\"once\"\r\n\r\nk\r\n--b--\r\n")
	r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	return r
}

// byField is Idempotent with its key in the field "once" of a form.
func byField(l *lock.Locker, opts ...latch.IdempotentOption) func(http.Handler) http.Handler {
	return latch.Idempotent(l, byUser, keyfunc.Form("once"), opts...)
}

// refusals returns a refusal of each kind, in the order of the constants.
func refusals(t *testing.T) (all []*latch.Problem) {
	t.Helper()
	source := must.Get(os.ReadFile("problemkind.go"))(t)
	for _, m := range regexp.MustCompile(`ProblemKind = "([^"]*)"`).FindAllStringSubmatch(string(source), -1) {
		p := latch.ProblemKind(m[1]).Problem()
		require.NotEmpty(t, p.Title, "problemkind.go: kinds lacks %s, or its title", m[1])
		all = append(all, p)
	}
	require.NotEmpty(t, all)
	return all
}

// TestGoldenPages compares the texts of each kind, with a button, without one, and by a Lock alone,
// with testdata/pages.txt, and whole pages with their files (-update writes them).
func TestGoldenPages(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	for _, p := range refusals(t) {
		kind := p.Kind()
		if kind == latch.ProblemCoolingDown {
			p.RetryAfter = 90 * time.Second
		}
		for _, variant := range []struct {
			name, body string
			once       bool
		}{{"with the form", "once=k", true}, {"without the form", "once=k&", true}, {"Lock alone", "once=k", false}} {
			latch.SetOnce(p, variant.once)
			page, ok := p.Page(submission(variant.body))
			require.True(t, ok)
			require.NotEmpty(t, page.Title, "problemkind.go: the page of %s has no title", kind)
			require.NotEmpty(t, page.Text, "problemkind.go: the page of %s has no text", kind)
			require.NotContains(t, page.Text, "")
			fmt.Fprintf(&said, "%s, %s\n# %s\n%s\n", kind, variant.name, page.Title, strings.Join(page.Text, "\n"))
			if page.Again != "" {
				fmt.Fprintf(&said, "[%s]\n", page.Again)
			}
			said.WriteByte('\n')
		}
	}
	golden(t, "testdata/pages.txt", said.String())
	golden(t, "testdata/in-progress.html", serve(inProgressProblem(), submission("once=k&note=%22%3E%0D%0A")).Body.String())
	golden(t, "testdata/own-status.html", serve(&latch.Problem{Status: 403, Title: `No <"entry">`}, submission("a=b")).Body.String())
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	require.Equal(t, string(want), got, "%s: go test ./middleware -run %s -update writes it", path, t.Name())
}

// A page offers to send a form again only where that cannot process it twice, as docs/problems.md says.
func TestOnlySafeButtons(t *testing.T) {
	t.Parallel()
	docs := must.Get(os.ReadFile("../docs/problems.md"))(t)
	labels := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| \*([^*]*)\* \| (.*) \|$`).FindAllStringSubmatch(string(docs), -1) {
		for _, kind := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(row[2], -1) {
			labels[kind[1]] = row[1]
		}
	}
	for _, p := range refusals(t) {
		kind := string(p.Kind())
		for _, once := range []bool{false, true} {
			latch.SetOnce(p, once)
			label := ""
			if once {
				label = labels[kind]
			}
			page, ok := p.Page(submission("a=b"))
			require.True(t, ok)
			require.EqualValues(t, kind, page.Kind)
			require.Equal(t, label, page.Again, kind)
			require.Equal(t, label != "", strings.Contains(serve(page, submission("a=b")).Body.String(), "<form"), kind)
			page.Again = "Anyway" // does not make it safe
			require.Equal(t, label != "", strings.Contains(serve(page, submission("a=b")).Body.String(), "<form"), kind)
		}
	}
	p := latch.Problem{Status: 500, Type: problemBase + "rolled-back"}
	latch.SetOnce(&p, true)
	page, _ := p.Page(submission("a=b"))
	require.Empty(t, page.Again, "it would end in the same way")
}

// TestPageOfARefusal goes through the guards: headers, and the button, which sends the same form again.
func TestPageOfARefusal(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithWait(0))
	var e effects
	entered, leave := make(chan struct{}), make(chan struct{})
	h := byField(l)(latch.Lock(l, "user", byUser)(e.then(func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-leave
		w.WriteHeader(http.StatusCreated)
	})))
	first := make(chan int)
	go func() { first <- serve(h, submission("once=k&sku=a+b%2B%7E*")).Code }()
	<-entered

	w := serve(h, submission("once=k&sku=a+b%2B%7E*"))
	require.Equal(t, 409, w.Code)
	require.Equal(t, http.Header{
		"Content-Type": {"text/html; charset=utf-8"}, "Cache-Control": {"no-store"}, "Vary": {"Accept"}, "Retry-After": {"1"}, "Latch-Problem": {"in-progress"},
	}, w.Header())
	require.Equal(t, "once=k&sku=a+b%2B%7E*", resent(t, w.Body.String()))
	require.Contains(t, w.Body.String(), `content="in-progress"`)

	other := serve(h, submission("once=other&sku=c"))
	require.Contains(t, other.Body.String(), `content="held"`)
	require.Equal(t, "once=other&sku=c", resent(t, other.Body.String()), "Idempotent outside sees to it that it runs once")

	alone := serve(latch.Lock(l, "user", byUser)(mustNotRun(t)), submission("once=k&sku=c"))
	require.Contains(t, alone.Body.String(), `content="held"`)
	require.NotContains(t, alone.Body.String(), "<form", "sent again, it would be a second order")

	api := submission("once=k&sku=a+b%2B%7E*")
	api.Header.Set("Accept", "application/json")
	requireProblem(t, wantProblem{status: 409, kind: "in-progress", retryAfter: "1"}, serve(h, api))

	close(leave)
	require.Equal(t, 201, <-first)
	replayed := serve(h, submission(resent(t, w.Body.String())))
	require.Equal(t, 201, replayed.Code)
	require.Equal(t, "true", replayed.Header().Get("Idempotent-Replayed"), "the first answer")
	e.require(t, 1)
}

func TestPageKeepsVaryOfOthers(t *testing.T) {
	t.Parallel()
	for _, outside := range [][]string{nil, {"Origin"}, {"Accept"}} {
		w := httptest.NewRecorder()
		for _, v := range outside {
			w.Header().Add("Vary", v)
		}
		(&latch.Problem{Status: 409}).ServeHTTP(w, submission(""))
		require.Subset(t, w.Header().Values("Vary"), append(outside, "Accept"))
		require.LessOrEqual(t, len(w.Header().Values("Vary")), 2)
	}
}

func TestHeadHasNoBody(t *testing.T) {
	t.Parallel()
	for _, accept := range []string{chromiumAccept, "*/*"} {
		r := httptest.NewRequest(http.MethodHead, "/", nil)
		r.Header.Set("Accept", accept)
		w := serve(&latch.Problem{Status: 503, Type: problemBase + "unavailable"}, r)
		require.Equal(t, 503, w.Code)
		require.Empty(t, w.Body.String())
	}
	w := httptest.NewRecorder()
	(&latch.Problem{Status: 409}).ServeHTTP(w, nil)
	require.JSONEq(t, `{"status":409}`, w.Body.String(), "no request, no preference")
}

// TestPageSaysNothingOfTheServer: a page shows neither the cause, nor parts of the request except for the form.
func TestPageSaysNothingOfTheServer(t *testing.T) {
	t.Parallel()
	r := submission("once=k")
	r.URL.Path, r.URL.RawQuery, r.Host = "/MARK", "MARK=MARK", "MARK"
	for _, name := range []string{"Referer", "User-Agent", "Cookie", "Accept-Language"} {
		r.Header.Set(name, "MARK")
	}
	r.Header.Add("Accept", "x/MARK")
	for _, p := range refusals(t) {
		p.Title, p.Err, p.Header = "MARK", io.ErrUnexpectedEOF, http.Header{"X-A": {"MARK"}}
		latch.SetOnce(p, true)
		body := serve(p, r).Body.String()
		require.NotContains(t, body, "MARK", p.Kind())
		require.NotContains(t, body, "EOF", p.Kind())
	}
}

// TestStyleHashIsDocumented: sites whose policy forbids inline style may allow this one by its hash.
func TestStyleHashIsDocumented(t *testing.T) {
	t.Parallel()
	docs := must.Get(os.ReadFile("../docs/problems.md"))(t)
	body := serve(&latch.Problem{Status: 409}, submission("")).Body.String()
	style := regexp.MustCompile(`(?s)<style>(.*)</style>`).FindStringSubmatch(body)
	require.Len(t, style, 2)
	sum := sha256.Sum256([]byte(style[1]))
	require.Contains(t, string(docs), "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	require.NotContains(t, body, "style=", "no hash allows an attribute")
}

func TestPageInWords(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		time.Nanosecond: "1 second.", 90 * time.Second: "90 seconds.", 121 * time.Second: "3 minutes.", 3 * time.Hour: "3 hours.",
	} {
		p := latch.Problem{Status: 429, Type: problemBase + "cooling-down", RetryAfter: d}
		page, ok := p.Page(submission(""))
		require.True(t, ok)
		require.Contains(t, page.Text[len(page.Text)-1], " in "+want, strconv.Quote(d.String()))
	}
}

// TestWayBack: each page links to the page from which the form was sent, if both have one origin.
func TestWayBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		referer, site string
		want          string
	}{
		"page of the form":           {"http://example.com/new", "same-origin", "/new"},
		"with a query":               {"http://example.com/new?a=%22&b=<c>", "same-origin", "/new?a=%22&b=<c>"},
		"spelling":                   {"http://example.com/a%2Fb", "same-origin", "/a%2Fb"},
		"behind a proxy":             {"https://shop.example/new", "same-origin", "/new"},
		"behind a proxy, old":        {"https://shop.example/new", "", "/"},
		"old browser":                {"http://example.com/new", "", "/new"},
		"other site":                 {"https://evil.example/new", "cross-site", "/"},
		"other origin":               {"https://evil.example.com/new", "same-site", "/"},
		"a path that names a host":   {"http://example.com//evil.example/x", "same-origin", "/"},
		"the same by a backslash":    {`http://example.com/\evil.example`, "same-origin", "/%5Cevil.example"},
		"a script with a host":       {"javascript://example.com/%0Aalert(1)", "same-origin", "/"},
		"no URL":                     {"http://[", "same-origin", "/"},
		"opaque":                     {"http:new", "same-origin", "/"},
		"longer than a page repeats": {"http://example.com/" + strings.Repeat("a", 2<<10), "same-origin", "/"},
	} {
		r := submission("once=k")
		for header, value := range map[string]string{"Referer": tt.referer, "Sec-Fetch-Site": tt.site} {
			if r.Header.Del(header); value != "" {
				r.Header.Set(header, value)
			}
		}
		page, ok := inProgressProblem().Page(r)
		require.True(t, ok, name)
		require.Equal(t, tt.want, page.BackTo, name)
		body := serve(page, r).Body.String()
		require.Equal(t, 1, strings.Count(body, "<a "), name)
		require.Contains(t, body, `<a href="`+strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(tt.want)+`" referrerpolicy="same-origin">Go back</a>`, name)
		page.Back = `Zurück"><b>`
		require.Contains(t, serve(page, r).Body.String(), `>Zurück&#34;&gt;&lt;b&gt;</a>`, name)
		page.Back = ""
		require.NotContains(t, serve(page, r).Body.String(), "<a ", name)
	}
}

// TestPageRepeatsNoSecret: a page has no field of a form with a secret, and asks to be reloaded instead: the browser
// itself then sends the form. Tokens against cross-site requests are in the page of the form too.
func TestPageRepeatsNoSecret(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{
		"password", "Password", "password_confirmation", "user[password]", "newPassword", "passwd", "pwd", "pass", "login.pw", "passphrase",
		"passcode", "Passwort", "mot_de_passe", "client_secret", "pin", "cardPin", "pin2", "cvv", "CVC2", "card[cvc]", "csc", "cc-csc", "cc-number",
		"card_number", "cardNumber", "card[number]", "creditCard", "security-code", "otp", "one-time-code", "token", "accessToken", "api_key", "ssn",
	} {
		for _, parsed := range []bool{false, true} {
			r := submission("once=k&" + url.Values{secret: {"hunter2"}}.Encode())
			if parsed {
				require.NoError(t, r.ParseForm())
			}
			page, ok := inProgressProblem().Page(r)
			require.True(t, ok)
			require.Empty(t, page.Again, secret)
			require.Empty(t, page.Fields, secret)
			require.Contains(t, strings.Join(page.Text, " "), "Reload this page", secret)
			require.NotContains(t, serve(inProgressProblem(), r).Body.String(), "hunter2", secret)
		}
	}
	for _, plain := range []string{
		"once", "sku", "shipping", "opinion", "compass", "passenger", "passport", "spinner", "pinned", "stopover", "cardholder", "number", "quantity", "tokens",
		"csrf_token", "csrfmiddlewaretoken", "gorilla.csrf.Token", "__RequestVerificationToken", "authenticity_token", "XSRF-TOKEN",
	} {
		page, ok := inProgressProblem().Page(submission(url.Values{plain: {"hunter2"}}.Encode()))
		require.True(t, ok)
		require.NotEmpty(t, page.Again, plain)
	}
}

func wantsPage(accept ...string) bool {
	r, _ := http.NewRequest(http.MethodPost, "/", nil)
	r.Header["Accept"] = accept
	_, ok := (&latch.Problem{Status: 409}).Page(r)
	return ok
}

func TestPrefersPage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		who    string
		accept []string
		page   bool
	}{
		{"no Accept", nil, false},
		{"curl, Go, fetch", []string{"*/*"}, false},
		{"Chromium", []string{chromiumAccept}, true},
		{"Turbo", []string{"text/vnd.turbo-stream.html, text/html, application/xhtml+xml"}, true},
		{"axios", []string{"application/json, text/plain, */*"}, false},
		{"old Java", []string{"text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"}, true},
		{"HTML named, JSON not", []string{"text/html, */*"}, true},
		{"only its kind named", []string{"text/*, */*;q=0.1"}, false},
		{"both, no preference", []string{"text/html, application/json"}, false},
		{"HTML less", []string{"text/html;q=0.9, application/json"}, false},
		{"problem less, json more", []string{"text/html;q=0.5, application/problem+json;q=0.4, application/json;q=0.6"}, false},
		{"problem more, json less", []string{"text/html;q=0.5, application/problem+json;q=0.6, application/json;q=0.4"}, false},
		{"both less", []string{"text/html;q=0.5, application/problem+json;q=0.4, application/json;q=0.3"}, true},
		{"HTML refused", []string{"text/html;q=0, */*"}, false},
		{"specific before weight", []string{"*/*;q=1, text/html;q=0.2, application/*;q=0.3"}, false},
		{"several lines", []string{"application/json;q=0.5", "text/html"}, true},
		{"case and white space", []string{" TEXT/HTML ; Q=0.9 ,\tApplication/JSON ; q=0.8"}, true},
		{"charset of the page", []string{`text/html;charset="UTF-8"`}, true},
		{"JSON with parameters", []string{"text/html;q=0.9, application/json;odata=verbose"}, false},
		{"malformed weights count for nothing", []string{"text/html;q=2, text/html;q=-1, text/html;q=1.001, text/html;q=, text/html;q=x, text/html;q=0.x"}, false},
		{"malformed weight of JSON", []string{"text/html;q=0.5, application/json;q=high"}, true},
		{"rubbish", []string{";;,,=,/,text/,/html,\"", "\\"}, false},
	} {
		require.Equal(t, tt.page, wantsPage(tt.accept...), tt.who)
	}
}

// FuzzAccept: no header is a reason to fail. A header that names no text and no */* never asks for
// a page, and a client that prefers JSON gets JSON.
func FuzzAccept(f *testing.F) {
	f.Add(chromiumAccept)
	f.Add(`a/b;c="d\",e";q=0.5,*/*;q=0`)
	f.Fuzz(func(t *testing.T, accept string) {
		page := wantsPage(accept)
		if page {
			require.Contains(t, strings.ToLower(accept), "text/")
		}
		require.Equal(t, page, wantsPage(accept, ""), "an empty line changes nothing")
		if strings.Count(accept, `"`) == 0 {
			require.Equal(t, page, wantsPage(strings.Split(accept, ",")...), "lines are one list")
		}
		require.False(t, wantsPage("application/problem+json", accept), "named, at its full weight")
	})
}
