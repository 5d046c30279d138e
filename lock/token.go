package lock

import (
	"crypto/rand"
	"encoding/base64"
	"strconv"
	"sync/atomic"

	"github.com/google/uuid"
)

// minter makes tokens: the locker's UUID, a counter, and 64 random bits. The
// random bits are for clones: a virtual machine that is resumed twice from one
// snapshot has the same UUID and counter in both, and must not be granted the
// other's lease as its own. So they are never drawn ahead: what lies in a buffer
// is the same in both, too. A store that is in this process was cloned with it,
// and its tokens do without.
type minter struct {
	prefix string
	cloned bool // the store is, whenever the process is
	count  atomic.Uint64
}

func newMinter(cloned bool) *minter {
	id := uuid.New()
	return &minter{prefix: base64.RawURLEncoding.EncodeToString(id[:]) + ".", cloned: cloned}
}

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
