package sealed

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock"
)

const (
	// sealHeader begins a sealed receipt; nonce and ciphertext follow. It distinguishes a
	// receipt that was never sealed from one that does not open. Its last byte is the
	// version of the format.
	sealHeader = "\x00LS\x01"

	// receiptDomain begins the additional data, so that no other data encrypted under the
	// same key passes for a receipt. It has the version too.
	receiptDomain = "httplatch sealed receipt 1\n"

	// aboutDomain begins the additional data of a request's description.
	aboutDomain = "httplatch sealed request 1\n"

	// minRandomNonce is the least length in bytes with which random nonces do not repeat,
	// in all likelihood, before an operator changes the key.
	minRandomNonce = 12
)

// seals are the AEADs of a sealed store. The first seals, all open.
type seals []cipher.AEAD

func newSeals(current cipher.AEAD, previous []cipher.AEAD) seals {
	all := append(seals{current}, previous...)
	for _, aead := range all {
		if aead == nil {
			panic("sealed: nil cipher.AEAD")
		}
	}
	if n := current.NonceSize(); n != 0 && n < minRandomNonce {
		panic(fmt.Sprintf("sealed: nonces of %d bytes are too short to be random, which takes at least %d", n, minRandomNonce))
	}
	return all
}

// seal encrypts a receipt that token keeps under key.
func (s seals) seal(receipt []byte, key, token string) []byte {
	return s.sealAs(receiptDomain, receipt, key, token)
}

func (s seals) sealAs(domain string, plain []byte, key, token string) []byte {
	aead := s[0]
	start := len(sealHeader) + aead.NonceSize()
	out := make([]byte, start, start+len(plain)+aead.Overhead())
	nonce := out[copy(out, sealHeader):]
	_, _ = rand.Read(nonce) // it never fails
	return aead.Seal(out, nonce, plain, sealedFor(domain, key, token))
}

// open is the inverse of seal. It returns nil for an empty receipt.
func (s seals) open(stored []byte, key, token string) ([]byte, error) {
	return s.openAs(receiptDomain, stored, key, token)
}

func (s seals) openAs(domain string, stored []byte, key, token string) ([]byte, error) {
	if len(stored) < len(sealHeader) || string(stored[:len(sealHeader)]) != sealHeader {
		return nil, errUnsealed
	}
	stored = stored[len(sealHeader):]
	bound := sealedFor(domain, key, token)
	// Not in place: a failed attempt may overwrite the ciphertext that the next attempt needs.
	room := make([]byte, 0, len(stored))
	for _, aead := range s {
		n := aead.NonceSize()
		if len(stored) < n {
			continue
		}
		plain, err := aead.Open(room, stored[:n], stored[n:], bound)
		switch {
		case err != nil:
			continue
		case len(plain) == 0:
			return nil, nil
		default:
			return plain, nil
		}
	}
	return nil, errSeal
}

// sealedFor returns the additional data for key and token. The length of the key separates the
// two.
func sealedFor(domain, key, token string) []byte {
	b := make([]byte, 0, len(domain)+len("1024:")+len(key)+len(token))
	b = append(b, domain...)
	b = strconv.AppendInt(b, int64(len(key)), 10)
	b = append(b, ':')
	b = append(b, key...)
	return append(b, token...)
}

// sealOwner seals the description of the request in owner, for an entry of token under key. The
// name of the process that has claimed the entry stays readable.
func (s seals) sealOwner(owner, key, token string) string {
	process, rest := requestinfo.Split(owner)
	if rest == "" {
		return owner
	}
	return process + string(requestinfo.Mark) + string(s.sealAs(aboutDomain, []byte(rest), key, token))
}

// openOwner is the inverse of sealOwner. If the description was not sealed here, or does not
// open, it returns only the process.
func (s seals) openOwner(owner, key, token string) string {
	process, rest := requestinfo.Split(owner)
	if rest == "" {
		return owner
	}
	opened, _ := s.openAs(aboutDomain, []byte(rest[1:]), key, token)
	return process + string(opened)
}

// sealError is the error of a receipt that exists and does not open.
type sealError struct{ class, text string }

var (
	errUnsealed error = &sealError{"unsealed", "sealed: the receipt of this key is not one that sealed.New left, or is of a newer version, and is not trusted: " +
		"have all processes that share the store seal; it goes with the end of its keep, or by Inspector.Forget, after which the work can run again"}
	errSeal error = &sealError{"seal", "sealed: no AEAD that sealed.New was given opens the receipt of this key: " +
		"pass the one that sealed it as a previous one; if it is there, the receipt was altered or is another entry's: " +
		"it goes with the end of its keep, or by Inspector.Forget, after which the work can run again"}
)

// Error has advice for an operator, and contains neither key nor token.
func (e *sealError) Error() string { return e.text }

// Class returns "unsealed" or "seal", for the Locker's log.
func (e *sealError) Class() string { return e.class }

// Unwrap returns ErrNotApplied, since the call changed nothing, and ErrUnsupported, since the
// store will never open the receipt. So the Locker does not try again, and does not treat the store
// as down: the work must not run, even with WithFailOpen.
func (*sealError) Unwrap() []error { return []error{lock.ErrNotApplied, errors.ErrUnsupported} }
