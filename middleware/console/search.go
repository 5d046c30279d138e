package console

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock"
)

// search is the query of an operator: entries with text in their keys, and records of
// requests with text in their descriptions.
type search struct {
	texts []string // in lower case; none: all
	label string   // the value of name=value, whole
	hash  bool     // the text may be the key_sha256 of a line of the log, or the key of a record
}

func searchFor(text string) search {
	if text == "" {
		return search{}
	}
	s := search{texts: []string{strings.ToLower(text), strings.ToLower(lock.Key(text))}}
	if _, value, ok := strings.Cut(text, "="); ok {
		s.label = requestinfo.Short(value)
	}
	digits, prefixed := strings.CutPrefix(s.texts[0], keytext.RecordPrefix)
	s.hash = prefixed || len(digits) >= len(keytext.Digest("")) && strings.Trim(digits, "0123456789abcdef") == ""
	return s
}

// key returns a filter for keys that contain the text, in upper or lower case: unchanged, as
// displayed, or as a value before lock.Key has escaped it. The filter also accepts the key whose
// hash is the text. It is nil if it would accept all keys. The key of a record is a hash, so a short text
// is sought in the name of a step only.
func (s search) key() func(key string) bool {
	if s.texts == nil {
		return nil
	}
	return func(key string) bool {
		if keytext.IsRecord(key) && !s.hash {
			_, key, _ = keytext.CutStep(key)
		}
		lower := strings.ToLower(key)
		return strings.Contains(lower, s.texts[0]) || strings.Contains(lower, s.texts[1]) ||
			strings.Contains(strings.ToLower(visible(key)), s.texts[0]) || s.hash && keytext.Digest(key) == s.texts[0]
	}
}

// read returns a filter for the keys of entries that have to be read, because the entry may match
// even if its key does not.
func (s search) read() func(key string) bool {
	match := s.key()
	if match == nil {
		return nil
	}
	return func(key string) bool { return keytext.IsRecord(key) || match(key) }
}

// matches reports whether e matches.
func (s search) matches(e *lock.Entry) bool {
	match := s.key()
	if match == nil || match(e.Key) {
		return true
	}
	r := requestOf(e.Owner)
	return r != nil && (r.has(s.texts[0]) || s.label != "" && r.Label == s.label)
}

// walk reads the entries of a store in steps.
type walk struct {
	steps  lock.Inspector
	cursor string
	looked int // entries read, about
}

const (
	maxStep = 1000 // entries in one call of the store

	// searchTime bounds the time for which one request reads entries that do not match.
	// Together with the last step and the page, a request takes less than a second.
	searchTime = 800 * time.Millisecond
)

var errNoList = errors.New("console: the store cannot list")

// walkFrom begins at cursor. If the store cannot list, the first step fails.
func (h *handler) walkFrom(cursor string) *walk {
	steps, _ := h.store.(lock.Inspector)
	return &walk{steps: steps, cursor: cursor}
}

// step returns the matching entries among the next n or so.
func (w *walk) step(ctx context.Context, n int, match func(key string) bool) ([]lock.Entry, error) {
	if w.steps == nil {
		return nil, errNoList
	}
	page, next, err := w.steps.Page(ctx, w.cursor, n, match)
	if errors.Is(err, errors.ErrUnsupported) {
		// The store has no pages.
		w.steps = wholeList{w.steps}
		page, next, err = w.steps.Page(ctx, w.cursor, n, match)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil, errNoList
	case err != nil:
		return nil, err
	}
	w.cursor = next
	w.looked += n
	return page, nil
}

// collect reads entries, from the place of l on, until there are enough or the search time is over.
func (h *handler) collect(ctx context.Context, cursor string, l *list) (found []lock.Entry, err error) {
	w, s := h.walkFrom(cursor), searchFor(l.Query)
	defer func() {
		l.Next, l.Looked = w.cursor, l.Looked+w.looked
	}()
	step, reads := l.Limit, l.Limit
	for until := time.Now().Add(searchTime); ; {
		page, err := w.step(ctx, step, s.read())
		if err != nil {
			return found, err
		}
		page = slices.DeleteFunc(page, func(e lock.Entry) bool { return !s.matches(&e) })
		if s.texts != nil {
			reads = h.readReceipts(ctx, page, reads)
		}
		page = slices.DeleteFunc(page, func(e lock.Entry) bool {
			_, _, isStep := keytext.CutStep(e.Key)
			return !l.Answers && (isStep || storedAnswer(e))
		})
		found = append(found, page...)
		if w.cursor == "" || len(found) >= l.Limit || !time.Now().Before(until) {
			return found, nil
		}
		if len(page) == 0 {
			step = min(2*step, maxStep)
		} else {
			step = l.Limit
		}
	}
}

// readReceipts reads the receipts of entries, which pages of the store omit: a receipt may show that
// the outcome of the request is unknown. It makes at most most reads, and returns how many of them
// are left. An entry that cannot be read counts as a stored answer.
func (h *handler) readReceipts(ctx context.Context, page []lock.Entry, most int) (left int) {
	for i := range page {
		if !storedAnswer(page[i]) || most == 0 {
			continue
		}
		most--
		if e, err := h.store.Get(ctx, page[i].Key); err == nil && e.State == page[i].State && e.Token == page[i].Token {
			page[i].Receipt = e.Receipt
		}
	}
	return most
}
