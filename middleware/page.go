package middleware

import (
	"html"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Page is a [Problem] for people to read, for clients that prefer text/html. It is an [http.Handler] that sends
// itself, with the status and the headers of its problem. An error handler ([WithErrorHandler]) can change its texts,
// or show them, and the form, in a page of its own:
//
//	func showProblem(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
//		page, ok := p.Page(r)
//		if !ok {
//			p.ServeHTTP(w, r) // JSON
//			return
//		}
//		if german, ok := texts[page.Kind]; ok {
//			page.Lang, page.Title, page.Text = "de", german.Title, german.Text
//		}
//		page.ServeHTTP(w, r)
//	}
//
// All fields are plain text, which ServeHTTP escapes.
type Page struct {
	Kind  ProblemKind // of the problem, such as "in-progress"
	Lang  string      // language of the texts, "en"
	Title string      // says what happened
	Text  []string    // paragraphs: whether there was an effect, and the next step

	// Again labels the button that sends Fields again, to the same URL. The repeat gets the first answer, or runs the
	// request once. If Again is "", there is no button: a repeat would be useless, could process the request twice
	// ([Lock] alone), or is impossible. It is impossible if a script or another site has sent the form, or the form has
	// files, more than 200 fields or 16 KiB, an encoding that browsers do not use, or a field that is named like a
	// password, a payment card or another secret.
	Again  string
	Fields []Field

	// Back labels the link to BackTo, the path and query of the page with the form, or "/" if the request does not name
	// that page. If Back is "", there is no link.
	Back, BackTo string

	problem *Problem
	resend  bool
}

// Page returns p as a page if r prefers text/html to JSON: its Accept header names text/html, not only text/*, and
// with a higher weight than JSON. At the same weight, r prefers the page if JSON is not named, and only covered by */* or
// application/*. Page may read up to 16 KiB of the body of r, which can be read again afterwards.
func (p *Problem) Page(r *http.Request) (page *Page, ok bool) {
	if !prefersPage(r) {
		return nil, false
	}
	page = &Page{Kind: p.Kind(), Lang: "en", Back: "Go back", BackTo: wayBack(r), problem: p}
	words, once := p.words(), p.once || lock.Attempt(r.Context()) > 0
	page.Title = words.title
	if words.again != "" && once {
		if page.Fields, page.resend = fieldsOf(r); page.resend {
			page.Again = words.again
		}
	}
	page.Text = words.text(once, page.resend)
	if p.RetryAfter > 0 && words.wait {
		page.Text = append(page.Text, "You can send it again in "+inWords(p.RetryAfter)+".")
	}
	return page, true
}

// ServeHTTP sends the page. If a policy of the site forbids inline style, the page has the colours of the browser.
func (page *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	page.problem.send(w, r, "text/html; charset=utf-8", page.body())
}

const pageStyle = `:root{color-scheme:light dark}` +
	`body{font:1.125rem/1.5 system-ui,sans-serif;max-width:34rem;margin:12vh auto 3rem;padding:0 1.25rem;` +
	`color:#1b1d21;background:#fff;overflow-wrap:break-word}` +
	`h1{font-size:1.625rem;line-height:1.25;margin:0 0 1rem}p{margin:0 0 1rem}` +
	`button{font:inherit;font-weight:600;margin:.5rem 0 0;padding:.625rem 1.25rem;border:0;border-radius:.5rem;` +
	`color:#fff;background:#1a56c4;cursor:pointer}form{margin:0 0 1.5rem}a{color:#1a56c4}` +
	`button:focus-visible,a:focus-visible{outline:3px solid #7aa7ff;outline-offset:2px}` +
	`@media(prefers-color-scheme:dark){body{color:#e7e9ee;background:#15171b}button{color:#10131a;background:#8db4ff}a{color:#8db4ff}}`

func (page *Page) body() []byte {
	var b strings.Builder
	b.WriteString("<!doctype html>\n<html lang=\"" + escaped(page.Lang) + "\">\n<head>\n<meta charset=\"utf-8\">\n")
	if page.Kind != "" {
		// Scripts look for it near the beginning, before all text that a client has sent.
		b.WriteString(`<meta name="latch-problem" content="` + escaped(string(page.Kind)) + "\">\n")
	}
	b.WriteString(`<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="strict-origin">
<title>` + escaped(page.Title) + "</title>\n<style>" + pageStyle + "</style>\n</head>\n<body>\n<main>\n<h1>" + escaped(page.Title) + "</h1>\n")
	for _, paragraph := range page.Text {
		b.WriteString("<p>" + escaped(paragraph) + "</p>\n")
	}
	if page.resend && page.Again != "" {
		b.WriteString("<form method=\"post\">\n") // without an action, the browser sends the form to the same URL
		for _, f := range page.Fields {
			b.WriteString(`<input type="hidden" name="` + escaped(f.Name) + `" value="` + escaped(f.Value) + "\">\n")
		}
		b.WriteString("<button>" + escaped(page.Again) + "</button>\n</form>\n")
	}
	if page.Back != "" && page.BackTo != "" {
		// The Referer shows the script of the form that the user has seen this page.
		b.WriteString(`<p><a href="` + escaped(page.BackTo) + `" referrerpolicy="same-origin">` + escaped(page.Back) + "</a></p>\n")
	}
	b.WriteString("</main>\n</body>\n</html>\n")
	return []byte(b.String())
}

var lineEnds = strings.NewReplacer("\r", "&#13;", "\n", "&#10;") // an HTML parser would unify them

func escaped(s string) string { return lineEnds.Replace(html.EscapeString(s)) }

func inWords(d time.Duration) string {
	unit, of := time.Second, "second"
	switch {
	case d > 2*time.Hour:
		unit, of = time.Hour, "hour"
	case d > 2*time.Minute:
		unit, of = time.Minute, "minute"
	}
	return plural(int64((d+unit-1)/unit), of)
}

// prefersPage reports whether r prefers the page, as Page describes. No parameter but the weight counts.
func prefersPage(r *http.Request) bool {
	if r == nil || len(r.Header["Accept"]) == 0 {
		return false
	}
	var page, json, others float64
	for element := range strings.SplitSeq(strings.Join(r.Header["Accept"], ","), ",") {
		media, parameters, err := mime.ParseMediaType(element)
		weight := 1.0
		if q, weighed := parameters["q"]; err == nil && weighed {
			weight, err = strconv.ParseFloat(q, 64)
		}
		if err != nil || weight > 1 {
			continue
		}
		switch media {
		case "text/html":
			page = max(page, weight)
		case "application/json", "application/problem+json":
			json = max(json, weight)
		case "application/*", "*/*":
			others = max(others, weight)
		}
	}
	return page > json && page >= others
}

// wayBack returns path and query of the page that sent r, if the page has the origin of r, and otherwise "/". It
// never returns the address of a refusal page, because a GET of that address may get another answer: the form of such
// a page sends only its origin.
func wayBack(r *http.Request) string {
	from, err := url.Parse(r.Header.Get("Referer"))
	if err != nil || from.Host == "" || from.Scheme != "http" && from.Scheme != "https" {
		return "/"
	}
	site := r.Header.Get("Sec-Fetch-Site") // "": an older browser, or one without TLS
	if site != "same-origin" && (site != "" || !strings.EqualFold(from.Host, r.Host)) {
		return "/"
	}
	const most = 2 << 10
	back := from.RequestURI()
	if len(back) > most || !strings.HasPrefix(back, "/") || strings.HasPrefix(back, "//") { // "//" begins a host
		return "/"
	}
	return back
}
