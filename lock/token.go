package lock

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"sync/atomic"

	"github.com/google/uuid"
)

// minter makes tokens of its UUID, a counter, and 64 random bits. The random bits are for
// clones: a virtual machine that is resumed twice from one snapshot has the same UUID and
// counter in both, and one of the two must not be granted the lease of the other as its own. The
// bits are never drawn ahead, because both would have the same buffer too. A store in this process
// is cloned with it, so its tokens have no random bits.
type minter struct {
	prefix string
	cloned bool // the store is cloned whenever the process is
	count  atomic.Uint64
}

func newMinter(cloned bool) *minter {
	id := uuid.New()
	return &minter{prefix: base64.RawURLEncoding.EncodeToString(id[:]) + ".", cloned: cloned}
}

// next returns a token that no other call returns, here or in any other process.
func (m *minter) next() string {
	buf := make([]byte, 0, 64)
	buf = append(buf, m.prefix...)
	buf = strconv.AppendUint(buf, m.count.Add(1), 36)
	if !m.cloned {
		var random [8]byte
		_, _ = rand.Read(random[:]) // crypto/rand.Read never fails: it aborts the program instead
		buf = append(buf, '.')
		buf = base64.RawURLEncoding.AppendEncode(buf, random[:])
	}
	return string(buf)
}
