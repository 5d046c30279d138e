package sealed

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"

	"github.com/httplatch/httplatch/internal/about"
	"github.com/httplatch/httplatch/lock"
)

const (
	// sealHeader begins a sealed receipt; nonce and ciphertext follow. It tells
	// a receipt that was never sealed from one that does not open, and its last
	// byte is the version of the format.
	sealHeader = "\x00LS\x01"

	// receiptDomain begins the additional data, so that nothing else that is
	// encrypted under the same key passes for a receipt. It has the version too.
	receiptDomain = "httplatch sealed receipt 1\n"

	// aboutDomain is that of what a record says of its request.
	aboutDomain = "httplatch sealed request 1\n"

	// minRandomNonce is the length in bytes from which on random nonces are not
	// expected to repeat before an operator changes the key.
	minRandomNonce = 12
)

// seals are the AEADs of a sealed store. The first one seals, all open.
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

// seal returns receipt as it is kept under key by token.
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

// open is the inverse of seal. A receipt of no bytes is nil.
func (s seals) open(stored []byte, key, token string) ([]byte, error) {
	return s.openAs(receiptDomain, stored, key, token)
}

func (s seals) openAs(domain string, stored []byte, key, token string) ([]byte, error) {
	if len(stored) < len(sealHeader) || string(stored[:len(sealHeader)]) != sealHeader {
		return nil, errUnsealed
	}
	stored = stored[len(sealHeader):]
	bound := sealedFor(domain, key, token)
	// Not in place: a failed attempt may overwrite what the next one is to open.
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

// sealedFor is the additional data of what is kept under key by token. The length
// of the key keeps the two apart.
func sealedFor(domain, key, token string) []byte {
	b := make([]byte, 0, len(domain)+len("1024:")+len(key)+len(token))
	b = append(b, domain...)
	b = strconv.AppendInt(b, int64(len(key)), 10)
	b = append(b, ':')
	b = append(b, key...)
	return append(b, token...)
}

// sealOwner seals what owner says of the request, for an entry under key by token. The
// process that has claimed it stays readable.
func (s seals) sealOwner(owner, key, token string) string {
	process, rest := about.Split(owner)
	if rest == "" {
		return owner
	}
	return process + string(about.Mark) + string(s.sealAs(aboutDomain, []byte(rest), key, token))
}

// openOwner is the inverse. Of what was not sealed here, or does not open, nothing but
// the process remains.
func (s seals) openOwner(owner, key, token string) string {
	process, rest := about.Split(owner)
	if rest == "" {
		return owner
	}
	opened, _ := s.openAs(aboutDomain, []byte(rest[1:]), key, token)
	return process + string(opened)
}

// sealError is a receipt that is there and cannot be had.
type sealError struct{ class, text string }

var (
	errUnsealed error = &sealError{"unsealed", "sealed: the receipt of this key is not one that sealed.New left, or is of a newer version, and is not trusted: " +
		"have all processes that share the store seal; it goes with the end of its keep, or by Inspector.Forget, after which the work can run again"}
	errSeal error = &sealError{"seal", "sealed: no AEAD that sealed.New was given opens the receipt of this key: " +
		"pass the one that sealed it as a previous one; if it is there, the receipt was altered or is another entry's: " +
		"it goes with the end of its keep, or by Inspector.Forget, after which the work can run again"}
)

// Error says what an operator can do, and names neither key nor token.
func (e *sealError) Error() string { return e.text }

// Class is "unsealed" or "seal", for the Locker's log.
func (e *sealError) Class() string { return e.class }

// Unwrap returns ErrNotApplied, for the entry was there, and ErrUnsupported,
// for the store can never do it: the Locker need not ask again, and must not
// take it for a store that is down, without which work may run if it was configured
// to fail open.
func (*sealError) Unwrap() []error { return []error{lock.ErrNotApplied, errors.ErrUnsupported} }
