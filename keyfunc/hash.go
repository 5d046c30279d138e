package keyfunc

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// Hash replaces f's key by its SHA-256 in lower-case hexadecimal. Use it for keys that
// must not be readable in the store or in logs, like a session cookie, and for joins that
// get long. A value that can be guessed, like a small number, can be guessed from its
// hash, too.
//
// Hash returns errors of f; an empty key is [ErrMissing]. For a key that a worker has to
// build as well, hash the parts (Join(Hash(a), b)), not the join.
//
// Hash panics on a nil f.
func Hash(f Func) Func {
	if f == nil {
		panic("keyfunc.Hash: nil function")
	}
	return func(r *http.Request) (string, error) {
		key, err := call(f, r, "the key to Hash")
		if err != nil {
			return "", err
		}
		sum := sha256.Sum256([]byte(key))
		return hex.EncodeToString(sum[:]), nil
	}
}
