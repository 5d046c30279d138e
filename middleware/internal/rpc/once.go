// Package rpc has what the guards for gRPC and for Connect share: a call, its refusals, and its receipt. Both leave the
// same receipts, under the same keys. It knows neither of them, nor protobuf.
package rpc

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/textproto"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/middleware/internal/record"
	"github.com/httplatch/httplatch/middleware/internal/setting"
)

// Answer is what is kept of a call: a message or a failure.
type Answer struct {
	Type    string              `json:"type,omitempty"` // full name of the message's type
	Message []byte              `json:"message,omitempty"`
	Header  map[string][][]byte `json:"header,omitempty"`
	Trailer map[string][][]byte `json:"trailer,omitempty"`
	Failure *Failure            `json:"failure,omitempty"`
}

// Failure is an error of a handler that is kept.
type Failure struct {
	Code    Code     `json:"code"`
	Text    string   `json:"text"`
	Details []Detail `json:"details,omitempty"`
}

// Detail is a message of an error, with the full name of its type.
type Detail struct {
	Type  string `json:"type"`
	Bytes []byte `json:"bytes"`
}

// maxReceipt is the most bytes of an answer that is kept, as in package middleware.
const maxReceipt = 1 << 20

// receipt returns the bytes to keep. None say that the call was processed, and has no answer.
func (a *Answer) receipt() []byte {
	if a == nil {
		return nil
	}
	kept, err := json.Marshal(a)
	if err != nil || len(kept) > maxReceipt {
		return nil
	}
	return kept
}

// FinalByDefault reports whether a call would fail with this code again, however often it is sent.
func FinalByDefault(code Code) bool {
	return code == InvalidArgument || code == NotFound || code == AlreadyExists || code == FailedPrecondition || code == OutOfRange
}

// Kept returns the headers of a replay, by the rule of package middleware. Values may be bytes.
func Kept(header map[string][]string) map[string][][]byte {
	kept := map[string][][]byte{}
	for name, values := range header {
		if record.NeverKept(textproto.CanonicalMIMEHeaderKey(name)) {
			continue
		}
		for _, v := range values {
			kept[name] = append(kept[name], []byte(v))
		}
	}
	return kept
}

// Call is a call of a unary method.
type Call struct {
	Scope, Method, Key string
	Request            []byte // with the name of its type, to compare
	Output             string // full name of the type of the method's response, "" if it is not known

	// Run runs the handler. An error frees the key. A nil answer is one that cannot be kept.
	Run func(ctx context.Context) (*Answer, error)

	// Copy copies an error of the handler for another call, whose interceptors may change it. nil: they cannot.
	Copy func(err error) error
}

func (c *Call) copied(err error) error {
	if c.Copy == nil {
		return err
	}
	return c.Copy(err)
}

// failed is an error of a handler, as opposed to one of a Locker.
type failed struct{ error }

func (f failed) Unwrap() error { return f.error }

// Once runs the call, unless it has run. kept is nil if it has run now. The error is a *Refusal, or the handler's, of
// this call or of the call that it has waited for.
func (c *Call) Once(ctx context.Context, l *lock.Locker) (kept *Answer, err error) {
	key := lock.Key("call", c.Scope, c.Method, c.Key)
	if len(key) > keytext.MaxBytes {
		return nil, Refuse("key-invalid")
	}
	ran, own := false, error(nil)
	fingerprint := sha256.Sum256(c.Request)
	receipt, replayed, err := l.Once(ctx, key, fingerprint[:], func(ctx context.Context) ([]byte, error) {
		answer, err := c.Run(ctx)
		if ran, own = true, err; err != nil {
			return nil, failed{c.copied(err)}
		}
		return answer.receipt(), nil
	})
	handlers, isHandlers := errors.AsType[failed](err)
	switch {
	case isHandlers && ran:
		return nil, own
	case isHandlers:
		return nil, c.copied(handlers.error)
	case err == nil && !replayed:
		return nil, nil //nolint:nilnil // the answer of this run is the caller's to send
	case err == nil:
		return open(receipt, c.Output)
	case replayed:
		return nil, Refuse("first-failed")
	default:
		return nil, refusalOf(ctx, err, ran)
	}
}

// open returns the answer in a receipt. A deployment may have changed the type that the method returns.
func open(receipt []byte, output string) (*Answer, error) {
	var a Answer
	if json.Unmarshal(receipt, &a) != nil || a.Failure == nil && (a.Type == "" || output != "" && a.Type != output) {
		return nil, Refuse("result-not-replayable")
	}
	return &a, nil
}

// Lock runs a call while it holds the lock of name and key. The error is a *Refusal, nil if the call has run.
func Lock(ctx context.Context, l *lock.Locker, name, key string, run func(ctx context.Context)) error {
	id := lock.Key(name, key)
	if len(id) > keytext.MaxBytes {
		return Refuse("key-invalid")
	}
	ran := false
	err := l.Do(ctx, id, func(ctx context.Context) error {
		ran = true
		run(ctx)
		return nil
	})
	if ran {
		return nil
	}
	r := refusalOf(ctx, err, false)
	if r.Kind == "in-progress" {
		return Refuse("held")
	}
	return r
}

// CheckOnce panics if guard, a constructor, cannot work with l.
func CheckOnce(guard string, l *lock.Locker, scope, key bool) {
	Check(guard, l, key)
	if !scope {
		panic(guard + ": nil scope")
	}
	if err := setting.ValidateReceipts(l); err != nil {
		panic(guard + ": " + err.Error())
	}
}

// Check panics if guard, a constructor, has no Locker or no key function.
func Check(guard string, l *lock.Locker, key bool) {
	switch {
	case l == nil:
		panic(guard + ": nil *lock.Locker")
	case !key:
		panic(guard + ": nil key function")
	}
}
