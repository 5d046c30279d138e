package console

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/httplatch/httplatch/internal/keytext"
)

// visible escapes all characters of s that are invisible, or change the look of other characters:
// keys and owners are untrusted, and an operator must see their exact bytes.
func visible(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1, r < utf8.RuneSelf && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}

// maxOwner bounds the displayed bytes of an owner, which is "host:pid" unless another
// program wrote it.
const maxOwner = 100

// process returns owner in words.
func process(owner string) string {
	if owner == "" {
		return "a process that did not give its name"
	}
	text := visible(owner)
	if len(text) > maxOwner {
		text = strings.ToValidUTF8(text[:maxOwner], "") + "…"
	}
	name, _, _ := strings.Cut(text, " ") // lock.WithOrigin appends to it
	colon := strings.LastIndexByte(name, ':')
	if colon < 0 {
		return text
	}
	return "process " + name[colon+1:] + " on host " + name[:colon]
}

// span returns d in words.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return "a time that the store does not tell"
	case d < time.Second:
		return "less than a second"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", ceil(d, time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", ceil(d, time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", ceil(d, time.Hour))
	default:
		return fmt.Sprintf("%d days", ceil(d, 24*time.Hour))
	}
}

func ceil(d, unit time.Duration) int64 { return int64((d-1)/unit) + 1 }

// ago returns the time since t in words.
func ago(t time.Time) string { return span(max(time.Since(t), time.Millisecond)) }

// lastPart returns the part of a displayed key that an operator may type instead of the whole key:
// the value after the name, or the end of a hash.
func lastPart(shown string) string {
	part := shown
	if _, value, found := strings.Cut(shown, "="); found {
		part = value
	} else if hash, found := strings.CutPrefix(shown, keytext.RecordPrefix); found {
		part = hash[max(0, len(hash)-8):]
	}
	if strings.TrimSpace(part) == "" {
		return shown
	}
	return part
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// entryLink leads to the entry of key from any page of the console.
func entryLink(key string) string { return "?key=" + url.QueryEscape(key) }

// defaultEntries is the length of a page unless a request sets it.
const defaultEntries = 50

// answersLink leads to everything that is kept under label, with stored answers.
func answersLink(label string) string {
	q := url.Values{"answers": {"1"}, "limit": {strconv.Itoa(defaultEntries)}}
	if label != "" {
		q.Set("q", label)
	}
	return "?" + q.Encode()
}

// formField encodes bytes for a hidden field. Without the encoding, a browser would change line
// ends and bytes that are not UTF-8.
func formField(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
