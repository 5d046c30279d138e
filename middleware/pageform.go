package middleware

import (
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/httplatch/httplatch/internal/bodybuf"
)

// Limits of a form that a page sends again. Each field becomes an element.
const (
	maxFormBytes  = 16 << 10
	maxFormFields = 200
)

// Field is one field of a form, as it was sent.
type Field struct{ Name, Value string }

// fieldsOf returns the form that r has sent, if a page can make a browser send the same request again: a POST of the
// site itself, whose body a browser would encode in the same way. It reads a body of up to maxFormBytes, which can be
// read again afterwards.
//
// The form of another site, sent again from a page of this site, would pass the protection against cross-site
// requests. The key of a script may have been in a header, which a form cannot send. A secret could be seen by other
// people in the page, and browsers store pages.
func fieldsOf(r *http.Request) (fields []Field, ok bool) {
	mode := r.Header.Get("Sec-Fetch-Mode") // "": a browser that does not say
	switch {
	case r.Method != http.MethodPost, r.ContentLength > maxFormBytes, len(r.Header["Idempotency-Key"]) > 0,
		mode != "" && mode != "navigate", new(http.CrossOriginProtection).Check(r) != nil:
		return nil, false
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || media != "application/x-www-form-urlencoded" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return nil, false
	}
	if r.ContentLength >= 0 { // browsers announce it
		bodybuf.Rewind(r)
		body, err := bodybuf.Bytes(r, maxFormBytes)
		switch {
		case err != nil, len(body) > maxFormBytes:
			return nil, false
		case len(body) > 0 || r.ContentLength == 0:
			return parseFields(string(body))
		}
	}
	// The form was parsed outside the guard, which compares its values, in any order of their names.
	form := asBrowsers.Replace(r.PostForm.Encode())
	if form == "" || len(form) > maxFormBytes {
		return nil, false
	}
	return parseFields(form)
}

// parseFields returns the fields of an encoded form, if browsers encode them exactly as in body.
func parseFields(body string) (fields []Field, ok bool) {
	if body == "" {
		return nil, true
	}
	var again strings.Builder
	for pair := range strings.SplitSeq(body, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return nil, false
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return nil, false
		}
		f := Field{name, value}
		if len(fields) == maxFormFields || !f.survives() || secretField(f.Name) {
			return nil, false
		}
		again.WriteString("&" + url.QueryEscape(name) + "=" + url.QueryEscape(value))
		fields = append(fields, f)
	}
	return fields, asBrowsers.Replace(again.String()[1:]) == body
}

// survives reports whether a hidden field sends f unchanged. A browser does not send a field without a name, sets
// _charset_ itself, replaces bytes that are not text, and changes every line end to CR LF.
func (f Field) survives() bool {
	sent := f.Name + "=" + f.Value
	return f.Name != "" && !strings.EqualFold(f.Name, "_charset_") && utf8.ValidString(sent) &&
		!strings.ContainsAny(strings.ReplaceAll(sent, "\r\n", ""), "\r\n\x00")
}

// asBrowsers makes an encoded form one as browsers encode it (URL Standard).
var asBrowsers = strings.NewReplacer("~", "%7E", "%2A", "*")

// Names of secret fields: secretWords match a word of the name, secretParts a part of the name without separators.
var (
	secretWords = []string{"pass", "pw", "pin", "cvv", "cvc", "csc", "cvn", "otp", "totp", "token", "ssn"}
	secretParts = []string{
		"passw", "passphrase", "passcode", "pwd", "kennwort", "motdepasse", "secret", "apikey", "privatekey", "onetimecode",
		"cardnumber", "cardno", "cardnum", "creditcard", "ccnumber", "ccnum", "securitycode", "verificationcode",
	}
	// The page of the form shows these tokens, too.
	crossSiteParts = []string{"csrf", "xsrf", "authenticity", "requestverification"}
)

// secretField reports whether a field with this name must not be repeated in a page.
func secretField(name string) bool {
	words := wordsOf(name)
	joined := strings.Join(words, "")
	has := func(part string) bool { return strings.Contains(joined, part) }
	if slices.ContainsFunc(secretParts, has) {
		return true
	}
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains(secretWords, word) && (word != "token" || !slices.ContainsFunc(crossSiteParts, has))
	})
}

// wordsOf returns the words of a name: "cardCvc2" has card and cvc.
func wordsOf(name string) []string {
	var spaced strings.Builder
	small := false
	for _, c := range name {
		switch {
		case !unicode.IsLetter(c):
			c = ' '
		case small && unicode.IsUpper(c):
			spaced.WriteByte(' ')
		}
		small = unicode.IsLower(c)
		spaced.WriteRune(unicode.ToLower(c))
	}
	return strings.Fields(spaced.String())
}
