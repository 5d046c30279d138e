package console_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
)

// pageElement is an element of a page of the console.
type pageElement struct {
	name     string
	attrs    map[string]string
	parent   *pageElement
	children []*pageElement
	text     string // of it and of what is in it
}

func (e *pageElement) in(names ...string) bool {
	for p := e.parent; p != nil; p = p.parent {
		if slices.Contains(names, p.name) {
			return true
		}
	}
	return false
}

// readPage reads a page of the console. Its HTML is written to be XML too, so what a browser would mend is an error here:
// an element that is not closed, an attribute without quotes, a character that HTML does not allow.
func readPage(page string) (all []*pageElement, err error) {
	rest, found := strings.CutPrefix(page, "<!DOCTYPE html>")
	if !found {
		return nil, errors.New("there is no doctype")
	}
	d := xml.NewDecoder(strings.NewReader(rest))
	at := &pageElement{}
	for {
		from := d.InputOffset()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := &pageElement{name: token.Name.Local, attrs: map[string]string{}, parent: at}
			for _, a := range token.Attr {
				if _, twice := e.attrs[a.Name.Local]; twice {
					return nil, fmt.Errorf("<%s> has %s twice", e.name, a.Name.Local)
				}
				e.attrs[a.Name.Local] = a.Value
			}
			at.children = append(at.children, e)
			all = append(all, e)
			at = e
			if void := slices.Contains(voidElements, e.name); void != strings.HasSuffix(rest[from:d.InputOffset()], "/>") {
				return nil, fmt.Errorf("<%s>: void elements, and only they, end in />", e.name)
			}
		case xml.EndElement:
			at.parent.text += at.text
			at = at.parent
		case xml.CharData:
			at.text += string(token)
		default:
			return nil, fmt.Errorf("%T in the page", token)
		}
	}
	return all, nil
}

var (
	voidElements = []string{"meta", "link", "input", "br"}
	phrasing     = []string{"#text", "a", "code", "strong", "span", "input", "button", "label", "br"}
	flow         = append([]string{"p", "h2", "h3", "ul", "dl", "form", "section", "nav", "details", "header", "main"}, phrasing...)
	sections     = append([]string{"h1"}, flow...)

	// contents has the elements, and the elements that each may contain.
	contents = map[string][]string{
		"": {"html"}, "html": {"head", "body"}, "head": {"meta", "title", "link"}, "title": {"#text"},
		"body": {"p", "header", "main"}, "header": sections, "main": flow, "section": flow, "nav": {"a"},
		"details": append([]string{"summary"}, flow...), "summary": {"#text"}, "form": flow, "dl": {"dt", "dd"},
		"ul": {"li"}, "li": flow, "dt": phrasing, "dd": phrasing, "p": phrasing, "h1": phrasing, "h2": phrasing, "h3": phrasing,
		"a": phrasing, "code": {"#text"}, "strong": phrasing, "span": phrasing, "button": phrasing, "label": phrasing,
		"meta": {}, "link": {}, "input": {}, "br": {},
	}
	attributes = map[string][]string{
		"html": {"lang"}, "meta": {"charset", "name", "content"}, "link": {"rel", "href"}, "form": {"method", "action", "role", "class"},
		"input": {
			"id", "name", "type", "value", "placeholder", "maxlength", "autocomplete", "autocapitalize", "spellcheck",
			"required", "checked", "aria-invalid", "aria-describedby",
		},
		"label": {"for"}, "button": {"type", "class"}, "a": {"href", "class", "rel"}, "p": {"class", "role", "id"}, "nav": {"aria-label"},
	}
)

// faults is everything that is wrong with a page of the console: with its HTML, with what a user without a mouse or without
// eyes needs, and with what must not be in it.
func faults(page string) []string {
	all, err := readPage(page)
	if err != nil {
		return []string{err.Error()}
	}
	var wrong []string
	complain := func(e *pageElement, what string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("<%s %v>: %s", e.name, e.attrs, fmt.Sprintf(what, args...)))
	}
	ids, labels := map[string]int{}, map[string]int{}
	count := map[string]int{}
	level := 0
	for _, e := range all {
		count[e.name]++
		ids[e.attrs["id"]]++
		if e.name == "label" {
			labels[e.attrs["for"]]++
		}
		if !slices.Contains(contents[e.parent.name], e.name) {
			complain(e, "must not be in <%s>", e.parent.name)
		}
		if allowed := contents[e.name]; !slices.Contains(allowed, "#text") && !slices.Contains(flow, e.name) && len(e.children) == 0 && strings.TrimSpace(e.text) != "" {
			complain(e, "must not have text")
		}
		if e.name == "a" && e.in("a", "button", "label", "summary") || e.name == "form" && e.in("form") {
			complain(e, "is in one like it")
		}
		for name, value := range e.attrs {
			if name != "class" && !slices.Contains(attributes[e.name], name) {
				complain(e, "must not have %s", name)
			}
			if (name == "href" || name == "action") && !strings.HasPrefix(value, "?") && value != "data:," {
				complain(e, "leads elsewhere")
			}
		}
		if len(e.name) == 2 && e.name[0] == 'h' && '1' <= e.name[1] && e.name[1] <= '6' {
			if to := int(e.name[1] - '0'); to > level+1 {
				complain(e, "comes after a heading of level %d", level)
			} else {
				level = to
			}
		}
		if slices.Contains([]string{"a", "button", "label", "h1", "h2", "h3", "title", "summary"}, e.name) && strings.TrimSpace(e.text) == "" {
			complain(e, "has no text")
		}
	}
	for _, e := range all {
		if e.name == "input" && e.attrs["type"] != "hidden" && labels[e.attrs["id"]] != 1 {
			complain(e, "has %d labels", labels[e.attrs["id"]])
		}
		for _, ref := range []string{e.attrs["for"], e.attrs["aria-describedby"]} {
			if ref != "" && ids[ref] == 0 {
				complain(e, "%q is not there", ref)
			}
		}
	}
	delete(ids, "")
	for id, n := range ids {
		if n > 1 {
			wrong = append(wrong, fmt.Sprintf("%d elements have the id %s", n, id))
		}
	}
	for _, name := range []string{"html", "head", "title", "body", "h1", "main"} {
		if count[name] != 1 {
			wrong = append(wrong, fmt.Sprintf("%d <%s>", count[name], name))
		}
	}
	if len(all) > 0 && all[0].attrs["lang"] == "" {
		wrong = append(wrong, "the page has no language")
	}
	return wrong
}

func requireValid(tb testing.TB, page string) {
	tb.Helper()
	require.Empty(tb, faults(page), page)
}

// TestFaultsAreFound: the check of pages finds what is wrong with these.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	page := func(main string) string {
		return `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8" /><title>t</title></head><body><header><h1>h</h1></header><main>` + main + "</main></body></html>"
	}
	require.Empty(t, faults(page(`<p>a &lt; b</p><label for="a">l</label><input id="a" />`)))
	for what, main := range map[string]string{
		"open element":          "<p>",
		"crossed":               "<p><strong></p></strong>",
		"bare ampersand":        "<p>a & b</p>",
		"attribute twice":       `<p class="a" class="b"></p>`,
		"void element as a box": "<p><br></br></p>",
		"box as a void element": "<p />",
		"block in a paragraph":  "<p><ul><li>a</li></ul></p>",
		"text item":             "<ul><p>a</p></ul>",
		"script":                "<script>1</script>",
		"handler":               `<p onclick="x()">a</p>`,
		"inline style":          `<p style="color:red">a</p>`,
		"link elsewhere":        `<p><a href="javascript:x()">a</a></p>`,
		"link without text":     `<p><a href="?"></a></p>`,
		"field without label":   `<input id="a" />`,
		"label of nothing":      `<label for="b">l</label>`,
		"id twice":              `<p id="a">a</p><p id="a">b</p>`,
		"skipped heading":       "<h3>a</h3>",
		"second h1":             "<h1>a</h1>",
	} {
		require.NotEmpty(t, faults(page(main)), what)
	}
	require.NotEmpty(t, faults(strings.TrimPrefix(page(""), "<!DOCTYPE html>")), "no doctype")
	require.NotEmpty(t, faults(strings.ReplaceAll(page(""), ` lang="en"`, "")), "no language")
}

// The line of the manual is one that compiles.
func TestManual(t *testing.T) {
	t.Parallel()
	_, after, found := strings.Cut(string(must.Get(os.ReadFile("../../docs/console.md"))(t)), "```go\n")
	require.True(t, found)
	block, _, _ := strings.Cut(after, "```")
	require.Contains(t, string(must.Get(os.ReadFile("example_test.go"))(t)), strings.TrimSpace(block))
}
