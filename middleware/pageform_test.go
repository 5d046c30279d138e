package middleware_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	latch "github.com/httplatch/httplatch/middleware"
)

func base64Sum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

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
	tests := map[string]struct {
		body  string
		again bool
	}{
		"plain":               {"once=k&sku=tea", true},
		"order and repeats":   {"b=2&a=1&b=1", true},
		"empty value":         {"a=&b=1", true},
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
		"needless encoding":   {"a=%61", false},
		"a blank that is %20": {"a=%20", false},
		"malformed":           {"a=%zz", false},
		"malformed name":      {"%zz=a", false},
		"semicolon":           {"a=1;b=2", false},
		"_charset_":           {"_charset_=UTF-8", false},
		"200 fields":          {strings.TrimSuffix(strings.Repeat("a=1&", 200), "&"), true},
		"201 fields":          {strings.TrimSuffix(strings.Repeat("a=1&", 201), "&"), false},
		"16 KiB":              {"a=" + strings.Repeat("b", 16<<10-2), true},
		"longer":              {"a=" + strings.Repeat("b", 16<<10-1), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			rest, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Equal(t, tt.body, string(rest), "it can be read again")
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

// TestUnescapedFormIsSeen: the check of the pages above finds values that were not escaped, or
// line ends that were not kept.
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
	tests := map[string]struct {
		change func(r *http.Request)
		again  bool
	}{
		"same origin":      {func(*http.Request) {}, true},
		"reload":           {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, true},
		"cross site":       {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, false},
		"same site":        {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, false},
		"other origin":     {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "https://evil.example") }, false},
		"opaque origin":    {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Set("Origin", "null") }, false},
		"older browser":    {func(r *http.Request) { r.Header.Del("Sec-Fetch-Site"); r.Header.Del("Sec-Fetch-Mode") }, true},
		"script":           {func(r *http.Request) { r.Header.Set("Sec-Fetch-Mode", "cors") }, false},
		"key in a header":  {func(r *http.Request) { r.Header.Set("Idempotency-Key", "k") }, false},
		"PUT":              {func(r *http.Request) { r.Method = http.MethodPut }, false},
		"chunked":          {func(r *http.Request) { r.ContentLength = -1 }, false},
		"JSON":             {func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, false},
		"no type":          {func(r *http.Request) { r.Header.Del("Content-Type") }, false},
		"UTF-8":            {func(r *http.Request) { r.Header.Set("Content-Type", urlencoded+"; charset=UTF-8") }, true},
		"Latin-1":          {func(r *http.Request) { r.Header.Set("Content-Type", urlencoded+"; charset=iso-8859-1") }, false},
		"body is gone":     {func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, false},
		"body breaks off":  {func(r *http.Request) { r.Body = io.NopCloser(io.MultiReader(strings.NewReader("a"), brokenReader{})) }, false},
		"parsed outside":   {func(r *http.Request) { _ = r.ParseForm() }, true},
		"no body, no form": {func(r *http.Request) { r.Body, r.ContentLength = http.NoBody, 0 }, true},
	}
	for name, tt := range tests {
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
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		require.NoError(t, form.WriteField("once", "k"))
		require.NoError(t, form.Close())
		r := submission(body.String())
		r.Header.Set("Content-Type", form.FormDataContentType())
		if parsed {
			require.NoError(t, r.ParseMultipartForm(1<<20))
		}
		page, ok := inProgressProblem().Page(r)
		require.True(t, ok)
		require.Empty(t, page.Again)
		require.Contains(t, strings.Join(page.Text, " "), "Reload this page")
	}
}

// FuzzFormIsSentAgain: for any form of a client, the page sends the same form, or nothing, and has
// only its own elements.
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
