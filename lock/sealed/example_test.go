package sealed_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"fmt"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/sealed"
)

// The stored answer cannot be read without the key of the AEAD. Every process
// with this key gets the same answer.
func ExampleNew() {
	secret := bytes.Repeat([]byte{42}, 32) // yours is random, and comes from a secret manager
	block, err := aes.NewCipher(secret)
	if err != nil {
		panic(err)
	}
	current, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}

	store := memstore.New()
	locker := lock.New(sealed.New(store, current))
	for range 2 {
		receipt, replayed, err := locker.Once(context.Background(), "order 7", nil, func(context.Context) ([]byte, error) {
			return []byte("card 4111"), nil
		})
		fmt.Printf("%s replayed=%t %v\n", receipt, replayed, err)
	}
	for e, err := range store.List(context.Background()) {
		fmt.Printf("kept: %d bytes, readable=%t %v\n", len(e.Receipt), bytes.Contains(e.Receipt, []byte("4111")), err)
	}
	// Output:
	// card 4111 replayed=false <nil>
	// card 4111 replayed=true <nil>
	// kept: 41 bytes, readable=false <nil>
}
