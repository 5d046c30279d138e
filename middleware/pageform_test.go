package middleware_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

var (
	hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)
	browserEnc  = strings.NewReplacer("%2A", "*", "~", "%7E")
)

// resent returns the body that a browser sends for the form of page, "" without a form. It shares
// no code with the tested function, and uses url.QueryEscape.
func resent(t *testing.T, page string) string {
	t.Helper()
	var pairs []string
	for _, m := range hiddenField.FindAllStringSubmatch(page, -1) {
		pair := [2]string{}
		for i, s := range m[1:] {
			require.NotContains(t, s, "<")
			require.NotContains(t, s, ">")
			s = strings.ReplaceAll(s, "\r\n", "\n") // of the source; references to characters come after it
			s = html.UnescapeString(s)
			s = regexp.MustCompile(`\r\n|\r|\n`).ReplaceAllString(s, "\r\n")
			pair[i] = browserEnc.Replace(url.QueryEscape(s))
		}
		pairs = append(pairs, pair[0]+"="+pair[1])
	}
	return strings.Join(pairs, "&")
}

func inProgressProblem() *latch.Problem {
	p := &latch.Problem{Status: 409, Type: problemBase + "in-progress"}
	latch.SetOnce(p, true)
	return p
}

// TestFormIsSentAgain: a form is sent again unchanged, or not at all.
func TestFormIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body  string
		again bool
	}{
		"plain":               {"once=k&sku=tea", true},
		"order and repeats":   {"b=2&a=1&b=1", true},
		"what is escaped":     {"a=%21%27%28%29%7E%C3%B6%E2%82%AC+%25%2B%26%3D*-._", true},
		"line ends":           {"a=1%0D%0A2%0D%0A", true},
		"hostile value":       {"a=%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E&b=%27%22+onfocus%3Dx+autofocus", true},
		"hostile name":        {"%22%3E%3C%2Fform%3E%3Cimg+src%3Dx+onerror%3Dy%3E=1", true},
		"references":          {"a=%26lt%3B%26%2334%3B%26amp%3B", true},
		"control characters":  {"a=%01%0B%0C%1B%7F", true},
		"a line feed alone":   {"a=1%0A2", false},
		"a return alone":      {"a=1%0D2", false},
		"NUL":                 {"a=%00", false},
		"not UTF-8":           {"a=%FF", false},
		"no name":             {"=1", false},
		"no value":            {"a", false},
		"an empty pair":       {"a=1&&b=2", false},
		"another encoding":    {"a=%7e", false},
		"a blank that is %20": {"a=%20", false},
		"malformed":           {"a=%zz", false},
		"malformed name":      {"%zz=a", false},
		"semicolon":           {"a=1;b=2", false},
		"_charset_":           {"_charset_=UTF-8", false},
		"200 fields":          {strings.TrimSuffix(strings.Repeat("a=1&", 200), "&"), true},
		"201 fields":          {strings.TrimSuffix(strings.Repeat("a=1&", 201), "&"), false},
		"16 KiB":              {"a=" + strings.Repeat("b", 16<<10-2), true},
		"longer":              {"a=" + strings.Repeat("b", 16<<10-1), false},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			r := submission(tt.body)
			page := serve(inProgressProblem(), r).Body.String()
			require.Equal(t, tt.again, strings.Contains(page, "<form"))
			require.Less(t, len(page), 64<<10, "longer ones are not recognised by a gateway")
			if tt.again {
				require.Equal(t, tt.body, resent(t, page))
			}
			// One form, one button, and no element of the client's making.
			for _, element := range []string{"<script", "<img", "<html", "</form>", "<button>"} {
				require.LessOrEqual(t, strings.Count(page, element), 1, element)
			}
			require.NotRegexp(t, `<script|<img`, page)
			require.Equal(t, tt.body, string(must.Get(io.ReadAll(r.Body))(t)), "it can be read again")
		})
	}
}

// TestFormThatWasParsedHasLimits: a form parsed outside of the guard has the limits of a body.
func TestFormThatWasParsedHasLimits(t *testing.T) {
	t.Parallel()
	fields := func(n int) string { return strings.TrimSuffix(strings.Repeat("a=1&", n), "&") }
	for body, again := range map[string]bool{
		fields(200): true, fields(201): false,
		"a=" + strings.Repeat("b", 16<<10-2): true, "a=" + strings.Repeat("b", 16<<10) + "&b=1": false,
	} {
		r := submission(body)
		require.NoError(t, r.ParseForm())
		require.Equal(t, again, strings.Contains(serve(inProgressProblem(), r).Body.String(), "<form"), len(body))
	}
}

// The check of the pages above finds values that were not escaped, or line ends that were not kept.
func TestUnescapedFormIsSeen(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]string{"a=%22%3E%3Cb%3E": `"><b>`, "a=%26lt%3B": "&lt;", "a=%0D%0A%0D%0A": "&#10;\r\n&#10;"} {
		require.NotEqual(t, want, resent(t, `<input type="hidden" name="a" value="`+value+`">`))
	}
}

// TestOnlyFormsOfTheSiteAreSentAgain: sent again from here, the form of another site would pass the
// check of its origin, and a request with its key in a header would have no key.
func TestOnlyFormsOfTheSiteAreSentAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(r *http.Request)
		again  bool
	}{
		"same origin":      {func(*http.Request) {}, true},
		"cross site":       {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, false},
		"same site":        {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, false},
		"other origin":     {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") }, false},
		"older browser":    {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Del("Sec-Fetch-Mode") }, true},
		"script":           {func(r *http.Request) { r.Header.Set("Sec-Fetch-Mode", "cors") }, false},
		"key in a header":  {func(r *http.Request) { r.Header.Set("Idempotency-Key", "k") }, false},
		"PUT":              {func(r *http.Request) { r.Method = http.MethodPut }, false},
		"chunked":          {func(r *http.Request) { r.ContentLength = -1 }, false},
		"UTF-8":            {func(r *http.Request) { r.Header.Set("Content-Type", urlencoded+"; charset=UTF-8") }, true},
		"Latin-1":          {func(r *http.Request) { r.Header.Set("Content-Type", urlencoded+"; charset=iso-8859-1") }, false},
		"body is gone":     {func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, false},
		"body breaks off":  {func(r *http.Request) { r.Body = io.NopCloser(io.MultiReader(strings.NewReader("a"), brokenReader{})) }, false},
		"parsed outside":   {func(r *http.Request) { _ = r.ParseForm() }, true},
		"no body, no form": {func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 }, true},
	} {
		r := submission("once=k&sku=tea")
		tt.change(r)
		page, ok := inProgressProblem().Page(r)
		require.True(t, ok, name)
		require.Equal(t, tt.again, page.Again != "", name)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestMultipartIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for _, parsed := range []bool{false, true} {
		r := byParts(submission)
		if parsed {
			require.NoError(t, r.ParseMultipartForm(1<<20))
		}
		page, ok := inProgressProblem().Page(r)
		require.True(t, ok)
		require.Empty(t, page.Again)
		require.Contains(t, strings.Join(page.Text, " "), "Reload this page")
	}
}

// For any form of a client, the page sends the same form, or nothing, and has only its own elements.
func FuzzFormIsSentAgain(f *testing.F) {
	f.Add("a=1&b=%22%3E%3Cscript%3E")
	f.Add("a=%0D%0A&a=+*%7E")
	f.Fuzz(func(t *testing.T, body string) {
		page := serve(inProgressProblem(), submission(body)).Body.String()
		tags := regexp.MustCompile(`<[^>]*`).FindAllString(hiddenField.ReplaceAllString(page, ""), -1)
		if strings.Contains(page, "<form") {
			require.Equal(t, body, resent(t, page))
			require.Len(t, tags, pageTags+4)
			return
		}
		require.Len(t, tags, pageTags)
	})
}

// pageTags is the number of tags of a page with two paragraphs, a link and no form.
const pageTags = 28

// The cookie of the key "k", as package form's script names it: FNV-1a of one character, from 0.
var cookieOfK = fmt.Sprintf("latch-%d", uint32('k')*16777619)

func byScript(body string) *http.Request {
	r := submission(body)
	r.Header.Set("Cookie", "session=s; "+cookieOfK+"=0")
	return r
}

// TestFinalAnswerToAFormIsReported to the script of package form, which has set the cookie of the key; the first time
// and with each replay, however the answer leaves. Nothing else is: the script would end a key that may be under way.
func TestFinalAnswerToAFormIsReported(t *testing.T) {
	t.Parallel()
	report := cookieOfK + "=1; Path=/; Max-Age=86400; SameSite=Lax"
	secure := []string{cookieOfK + "=1; Path=/; Max-Age=86400; Secure; SameSite=Lax"}
	redirect := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://pay.example/", http.StatusSeeOther)
	}
	long, late := acts(write(strings.Repeat("a", 100))), acts(status(http.StatusSeeOther), header("X-Late", "1"))
	fails, mistake := acts(status(http.StatusInternalServerError)), acts(status(http.StatusUnprocessableEntity))
	own := func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "own", Value: "1"})
		redirect(w, r)
	}
	revoked := latch.WithReplay(func(*http.Request, *latch.Answer) error { return errors.New("of the hook") })
	below400 := latch.WithFinal(func(status int) bool { return status < 400 })
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		opts    []latch.IdempotentOption
		change  func(r *http.Request)
		first   []string // cookies of the first answer
		repeat  []string
	}{
		"redirect":                  {handler: redirect, first: []string{report}, repeat: []string{report}},
		"cookies of the handler":    {handler: own, first: []string{"own=1", report}, repeat: []string{report}},
		"headers set too late":      {handler: late, first: []string{report}, repeat: []string{report}},
		"not kept":                  {handler: long, opts: []latch.IdempotentOption{latch.WithBodyLimits(1<<20, 10)}, first: []string{report}, repeat: []string{report}},
		"over TLS":                  {handler: redirect, change: func(r *http.Request) { r.TLS = &tls.ConnectionState{} }, first: secure, repeat: secure},
		"a mistake that is final":   {handler: mistake, first: []string{report}, repeat: []string{report}},
		"a mistake to be corrected": {handler: mistake, opts: []latch.IdempotentOption{below400}},
		"a failure":                 {handler: fails},
		"a repeat that is refused":  {handler: redirect, opts: []latch.IdempotentOption{revoked}, first: []string{report}},
		"no script":                 {handler: redirect, change: func(r *http.Request) { r.Header.Del("Cookie") }},
		"the cookie of another key": {handler: redirect, change: func(r *http.Request) { r.Header.Set("Cookie", "latch-5=0") }},
	} {
		h := byField(newLocker(t, memstore.New()), tt.opts...)(tt.handler)
		for n, want := range [][]string{tt.first, tt.repeat} {
			r := byScript("once=k&sku=a")
			if tt.change != nil {
				tt.change(r)
			}
			require.Equal(t, want, serve(h, r).Header()["Set-Cookie"], "%s, attempt %d", name, n)
		}
	}
}

// TestRefusalIsReportedIfItIsFinal: a refusal after which the key cannot be used again is reported.
func TestRefusalIsReportedIfItIsFinal(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New(), lock.WithWait(0))
	entered, leave := make(chan struct{}), make(chan struct{})
	h := byField(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		w.WriteHeader(http.StatusSeeOther)
	}))
	first := make(chan http.Header)
	go func() { first <- serve(h, byScript("once=k&sku=a")).Header() }()
	<-entered
	require.Empty(t, serve(h, byScript("once=k&sku=a")).Header()["Set-Cookie"], "in-progress")
	reused := serve(h, byScript("once=k&sku=b"))
	require.Contains(t, reused.Body.String(), `content="key-reused"`)
	require.Len(t, reused.Header()["Set-Cookie"], 1)
	close(leave)
	require.Len(t, (<-first)["Set-Cookie"], 1)
}

// The report is for the field of the form, for any key of the guard and in each encoding of forms.
func TestReportGoesByTheField(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	redirect := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSeeOther) })
	for name, guard := range map[string]func(http.Handler) http.Handler{
		"hashed": latch.Idempotent(l, byUser, keyfunc.Hash(keyfunc.Form("once"))),
		"dedupe": latch.Dedupe(l, byUser, time.Minute),
	} {
		require.Len(t, serve(guard(redirect), byScript("once=k&sku=a")).Header()["Set-Cookie"], 1, name)
	}
	require.Len(t, serve(byField(l)(redirect), byParts(byScript)).Header()["Set-Cookie"], 1)
}
