package keyfunc

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// declaredAsJSON refuses a request if a handler, because of the Content-Type, could read it in a
// format other than JSON, or from a place other than the body.
func (s source) declaredAsJSON(r *http.Request, tokens []pointerToken) error {
	var kind string
	switch types := r.Header["Content-Type"]; len(types) {
	case 0:
	case 1:
		kind, _, _ = strings.Cut(types[0], ";")
	default:
		return s.bad("cannot be read: the Content-Type is sent twice; send it once")
	}
	// Every binder knows this spelling. gin reads the query of a GET, whatever the type.
	if strings.TrimRight(kind, " ") == "application/json" && r.Method != http.MethodGet {
		return nil
	}
	kind = strings.ToLower(textproto.TrimString(kind))
	switch kind {
	case "", "application/json", "text/json", "text/plain", "application/octet-stream":
	default:
		// A JSON text can be a form and an XML document, too, with other values.
		if !ownJSONType(kind) {
			return s.bad("cannot be read: the Content-Type is not that of JSON; send application/json")
		}
	}
	return s.notInQuery(r, tokens)
}

// ownJSONType reports whether kind ends with +json, and is not another type for a binder that reads
// only the beginning of kind: gin cuts it at a space, and old versions of echo compare prefixes.
func ownJSONType(kind string) bool {
	base, is := strings.CutSuffix(kind, "+json")
	if !is || strings.ContainsAny(base, " \t,") || !strings.Contains(base, "/") || strings.HasSuffix(base, "/") {
		return false
	}
	for _, other := range []string{"application/x-www-form-urlencoded", "application/xml", "text/xml", "multipart/"} {
		if strings.HasPrefix(base, other) {
			return false
		}
	}
	return true
}

// notInQuery refuses a value that is also in the query: gin's ShouldBind reads the query of a GET,
// and of a request whose Content-Type it does not know. For a struct field without a tag, it looks
// for the Go name of the field: OrderID for order_id.
func (s source) notInQuery(r *http.Request, tokens []pointerToken) error {
	query, _ := url.ParseQuery(r.URL.RawQuery) // if it does not parse, handlers get a part
	for name := range query {
		for _, t := range tokens {
			if fieldName(name) == fieldName(t.name) {
				return s.bad("is in the query, too; send it in the body only, as application/json")
			}
		}
	}
	return nil
}

var withoutSeparators = strings.NewReplacer("_", "", "-", "")

func fieldName(name string) string { return string(foldCase([]byte(withoutSeparators.Replace(name)))) }
