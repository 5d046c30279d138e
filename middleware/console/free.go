package console

import (
	"cmp"
	"context"
	"encoding/base64"
	"log/slog"
	"mime"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
)

// maxForm is more than two encoded keys need.
const maxForm = 16 << 10

// post frees the key of the page's form, if the operator has typed the key.
func (h *handler) post(a *answer) {
	// Only this encoding is read. A page of another site can send other encodings without a
	// preflight, and these are not even parsed.
	if media, _, err := mime.ParseMediaType(a.r.Header.Get("Content-Type")); err != nil || media != "application/x-www-form-urlencoded" {
		a.fail(wrongMedia)
		return
	}
	a.r.Body = http.MaxBytesReader(a.w, a.r.Body, maxForm)
	if err := a.r.ParseForm(); err != nil {
		a.fail(badForm)
		return
	}
	if a.r.PostForm.Has("label") {
		h.postErase(a)
		return
	}
	key, err := base64.RawURLEncoding.DecodeString(a.r.PostForm.Get("key"))
	token, err2 := base64.RawURLEncoding.DecodeString(a.r.PostForm.Get("token"))
	if err != nil || err2 != nil || len(key) == 0 || len(token) == 0 {
		a.fail(badForm)
		return
	}
	shown := visible(string(key))
	typed := strings.TrimSpace(a.r.PostForm.Get("confirm"))
	if typed == "" || typed != strings.TrimSpace(shown) && typed != strings.TrimSpace(lastPart(shown)) {
		if !a.html() {
			a.fail(notConfirmed)
			return
		}
		h.showEntry(a, string(key), "That is not what the key reads. Nothing was freed.")
		return
	}
	h.free(a, string(key), string(token), a.r.PostForm.Get("answered") == "true")
}

// free removes the entry of key if it has token. Its run keeps the token, so unless the operator has seen
// an answer, free removes none: the run may have ended since.
func (h *handler) free(a *answer, key, token string, answered bool) {
	if key == "" || token == "" || len(key) > keytext.MaxBytes {
		a.fail(badDelete)
		return
	}
	ctx := a.r.Context()
	before, _ := h.get(ctx, key) // its name may be missing
	if before.Token == token && storedAnswer(before) && !answered {
		f := answeredSince
		f.Look = entryLink(key)
		a.fail(f)
		return
	}
	freed, err := h.forget(ctx, key, token)
	if err != nil {
		f := freeingUnknown
		f.Look = entryLink(key)
		a.fail(f)
		return
	}
	if !freed {
		f := h.whyNot(ctx, key, token)
		f.Look = entryLink(key)
		a.fail(f)
		return
	}
	a.logger.LogAttrs(ctx, slog.LevelInfo, "httplatch: an operator freed a key",
		slog.String("name", cmp.Or(requestinfo.Guard(before.Owner), keytext.Name(key))),
		slog.String("key_sha256", digest(key)), slog.String("remote", a.r.RemoteAddr))
	if !a.html() {
		a.w.WriteHeader(http.StatusNoContent)
		return
	}
	was := entry{Key: key, Request: requestOf(before.Owner)} // so that the title stays
	a.send(http.StatusOK, "freed", entryPage{Shown: visible(key), Look: entryLink(key), Entry: &was})
}

// digest returns the key_sha256 of the Locker's log lines. The key of a record contains
// it.
func digest(key string) string {
	if hash, ok := strings.CutPrefix(key, keytext.RecordPrefix); ok {
		return hash[:min(len(hash), len(keytext.Digest("")))]
	}
	return keytext.Digest(key)
}

// whyNot returns the reason why nothing was freed.
func (h *handler) whyNot(ctx context.Context, key, token string) failure {
	e, err := h.get(ctx, key)
	switch {
	case err != nil:
		return storeUnanswered(err)
	case e.Key == "":
		return alreadyGone
	case e.Token == token:
		return cannotForget
	default:
		return staleToken
	}
}
