package semantics_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/assert"
)

// problemBase is the beginning of the type of every refusal.
const problemBase = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

// never are headers that no replay has.
var never = []string{
	"Set-Cookie", "Set-Cookie2", "Authorization", "Www-Authenticate", "Authentication-Info", "Proxy-Authenticate",
	"Connection", "Keep-Alive", "Upgrade", "Trailer",
}

// fresh is an answer of the handler itself.
func fresh(status int) want {
	return want{fmt.Sprintf("`%d`", status), func(w *world, a *answer) error {
		if a.status != status {
			return fmt.Errorf("want a fresh %d", status)
		}
		if a.header.Get("Idempotent-Replayed") != "" {
			return fmt.Errorf("want a fresh %d, not a replay", status)
		}
		w.original = a
		return nil
	}}
}

// created is the answer of the handler that most rows have, at its n-th run.
func created(n int) want {
	is := fresh(http.StatusCreated)
	return want{fmt.Sprintf("`201` order %d", n), func(w *world, a *answer) error {
		if err := is.check(w, a); err != nil {
			return err
		}
		if text := fmt.Sprintf(`{"order":%d}`, n); a.body != text {
			return fmt.Errorf("want the body %s", text)
		}
		return nil
	}}
}

// replay is the last fresh answer again: status, headers, body, and how it was framed.
func replay() want {
	return want{"replayed", func(w *world, a *answer) error {
		if a.header.Get("Idempotent-Replayed") != "true" {
			return errors.New("want a replay")
		}
		if w.original == nil {
			return errors.New("there is nothing that it could be a replay of")
		}
		was, is := w.original.header.Clone(), a.header.Clone()
		is.Del("Idempotent-Replayed")
		for _, name := range never {
			if is.Get(name) != "" {
				return fmt.Errorf("want no %s in a replay", name)
			}
			was.Del(name)
		}
		switch {
		case a.status != w.original.status:
			return fmt.Errorf("want the status %d again", w.original.status)
		case a.body != w.original.body:
			return fmt.Errorf("want the body %q again", w.original.body)
		case !assert.ObjectsAreEqual(was, is):
			return fmt.Errorf("want the headers %v again", was)
		case a.length != w.original.length || !slices.Equal(a.coding, w.original.coding):
			return fmt.Errorf("want the framing %d %v again, not %d %v", w.original.length, w.original.coding, a.length, a.coding)
		}
		return nil
	}}
}

// problem is a refusal, with all that every refusal has. retryAfter is "" if there must be none.
func problem(status int, kind, retryAfter string) want {
	words := fmt.Sprintf("`%d` [%s](../problems.md#%s)", status, kind, kind)
	if retryAfter != "" {
		words += ", `Retry-After: " + retryAfter + "`"
	}
	return want{words, func(_ *world, a *answer) error {
		var members map[string]any
		if err := json.Unmarshal([]byte(a.body), &members); err != nil {
			return fmt.Errorf("want a %s: %w", kind, err)
		}
		switch {
		case a.status != status:
			return fmt.Errorf("want %d", status)
		case members["type"] != problemBase+kind:
			return fmt.Errorf("want the type %s", kind)
		case members["status"] != float64(status) || members["title"] == "":
			return errors.New("want the members status and title")
		case a.header.Get("Content-Type") != "application/problem+json":
			return errors.New("want application/problem+json")
		case a.header.Get("Latch-Problem") != kind:
			return errors.New("want Latch-Problem: " + kind)
		case a.header.Get("Cache-Control") != "no-store":
			return errors.New("want Cache-Control: no-store")
		case a.header.Get("Retry-After") != retryAfter:
			return fmt.Errorf("want Retry-After: %q", retryAfter)
		case a.header.Get("Idempotent-Replayed") != "":
			return errors.New("want a refusal, not a replay")
		}
		return nil
	}}
}

// expect is an answer for which holds is true. words say so.
func expect(words string, holds func(a *answer) bool) want {
	return want{words, func(_ *world, a *answer) error {
		if !holds(a) {
			return errors.New("want " + words)
		}
		return nil
	}}
}

// plain is a refusal with a status of the application's own choice, and no type.
func plain(status int) want {
	return expect(fmt.Sprintf("`%d`", status), func(a *answer) bool { return a.status == status && !strings.Contains(a.body, `"type"`) })
}

func inProgress() want { return problem(http.StatusConflict, "in-progress", "1") }

func heldBy() want { return problem(http.StatusConflict, "held", "1") }

func reused() want { return problem(http.StatusUnprocessableEntity, "key-reused", "") }

func unknown() want { return problem(http.StatusConflict, "outcome-unknown", "") }

func notReplayable() want { return problem(http.StatusConflict, "result-not-replayable", "") }

func missing() want { return problem(http.StatusBadRequest, "key-missing", "") }

func invalid() want { return problem(http.StatusBadRequest, "key-invalid", "") }

func unavailable() want { return problem(http.StatusServiceUnavailable, "unavailable", "1") }

// none is a connection that ends without an answer.
func none() want { return want{words: "no answer"} }

// ok is a fresh answer of any status below 400.
func ok() want {
	return want{"the handler's answer", func(w *world, a *answer) error {
		if a.status >= 400 {
			return errors.New("want an answer below 400")
		}
		return fresh(a.status).check(w, a)
	}}
}

// status is an answer of that status, replayed or not.
func status(code int) want {
	return expect(fmt.Sprintf("`%d`", code), func(a *answer) bool { return a.status == code })
}

func without(s string) want {
	return want{"", expect("nothing of "+s, func(a *answer) bool { return !strings.Contains(a.body, s) }).check}
}

func has(name, value string) want {
	return expect("`"+name+": "+value+"`", func(a *answer) bool { return strings.Join(a.header.Values(name), ", ") == value })
}

func lacks(names ...string) want {
	return expect("no `"+strings.Join(names, "`, `")+"`", func(a *answer) bool {
		return !slices.ContainsFunc(names, func(name string) bool { _, there := a.header[http.CanonicalHeaderKey(name)]; return there })
	})
}

func text(s string) want {
	words := "`" + strings.Trim(strconv.Quote(s), `"`) + "`"
	return expect(strings.ReplaceAll(words, `\"`, `"`), func(a *answer) bool { return a.body == s })
}

func bytesLong(n int) want {
	return expect(fmt.Sprintf("%d bytes", n), func(a *answer) bool { return len(a.body) == n })
}

func cutOff() want { return expect("cut off", func(a *answer) bool { return a.cut }) }

func hinted(statuses ...int) want {
	words := "no `103`"
	if len(statuses) > 0 {
		words = fmt.Sprintf("`%d` before it", statuses[0])
	}
	return expect(words, func(a *answer) bool { return slices.Equal(a.hints, statuses) })
}

func trailer(name, value string) want {
	return expect("trailer `"+name+"`", func(a *answer) bool { return a.trailer.Get(name) == value })
}
