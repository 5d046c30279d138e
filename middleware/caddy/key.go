package latchcaddy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/httplatch/httplatch/keyfunc"
)

// keyOf returns the function of a key: words with blanks between them.
func keyOf(text string) (keyfunc.Func, error) {
	var all []keyfunc.Func
	for word := range strings.FieldsSeq(text) {
		f, err := wordKey(word)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	switch len(all) {
	case 0:
		return nil, errors.New("it is empty: write a placeholder like {http.auth.user.id}, or idempotency-key")
	case 1:
		return all[0], nil
	}
	return keyfunc.Join(all...), nil
}

// wordKey returns the function of a word. The constructors panic on names that no request has.
func wordKey(word string) (f keyfunc.Func, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%q: %v", word, p)
		}
	}()
	kind, name, _ := strings.Cut(word, ":")
	switch {
	case strings.Contains(word, "{"):
		return placeholder(word)
	case kind == "json":
		return keyfunc.JSON(name), nil
	case kind == "form":
		return keyfunc.Form(name), nil
	}
	switch word {
	case "idempotency-key":
		return keyfunc.IdempotencyKey, nil
	case "optional-idempotency-key":
		return keyfunc.Optional(keyfunc.IdempotencyKey), nil
	case "canonical-json":
		return keyfunc.CanonicalJSON, nil
	case "global":
		return keyfunc.Global, nil
	}
	return nil, fmt.Errorf("%q is no key: write a placeholder like {http.auth.user.id}, or idempotency-key, "+
		"optional-idempotency-key, json:/pointer, form:field, canonical-json or global", word)
}

const (
	headerPlaceholder = "{http.request.header."
	cookiePlaceholder = "{http.request.cookie."
	bodyPlaceholder   = "{http.request.body"
	longestValue      = 1 << 10
)

// placeholder returns the function of a word with a placeholder, and text around it.
func placeholder(word string) (keyfunc.Func, error) {
	begin, end := strings.Index(word, "{"), strings.Index(word, "}")
	switch {
	case end < begin:
		return nil, fmt.Errorf("%q: the brace is not closed: write {name}", word)
	case strings.ContainsAny(word[end+1:], "{}"):
		return nil, fmt.Errorf("%q: two placeholders in a word are ambiguous: write a blank between them", word)
	case strings.Contains(word, bodyPlaceholder):
		return nil, fmt.Errorf("%q would take the body from the handler: write json:/pointer or form:field", word)
	}
	shown := word[begin : end+1]
	if name, is := strings.CutPrefix(shown, headerPlaceholder); is {
		header := keyfunc.Header(strings.TrimSuffix(name, "}")) // which refuses a header that is sent twice, and hashes secrets
		return func(r *http.Request) (string, error) {
			value, err := header(r)
			if err != nil {
				return "", err //nolint:wrapcheck // it has the answer
			}
			return word[:begin] + value + word[end+1:], nil
		}, nil
	}
	f := replaced(word, shown)
	if strings.HasPrefix(shown, cookiePlaceholder) {
		f = keyfunc.Hash(f) // keys can be read in the store
	}
	return f, nil
}

// replaced returns the function of a word whose placeholder is shown.
func replaced(word, shown string) keyfunc.Func {
	return func(r *http.Request) (string, error) {
		replacer, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
		if !ok {
			return "", errors.New("latch: the request has no replacer of Caddy")
		}
		var value string
		var err error
		exchangeOf(r.Context()).with(r.URL, func() { value, err = replacer.ReplaceOrErr(word, true, true) })
		if err != nil {
			return "", &keyfunc.Error{
				Status: http.StatusBadRequest,
				Err:    fmt.Errorf("%w: %w", keyfunc.ErrMissing, err),
				Detail: "The request has no value for " + shown + ".",
			}
		}
		if len(value) > longestValue || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return "", &keyfunc.Error{
				Status: http.StatusBadRequest,
				Err:    fmt.Errorf("latch: the value of %s is longer than %d bytes, or has a control character", shown, longestValue),
				Detail: "The value for " + shown + " is too long, or has a control character.",
			}
		}
		return value, nil
	}
}
