package middleware

import (
	"errors"
	"sync"
)

// recordPool keeps what records were written into for the next answers of a
// guard. The Locker has its own copy of a record by the time the answer has been
// sent.
type recordPool struct{ pool sync.Pool }

const (
	firstRecord = 512
	// maxPooled is the largest that is kept: one long answer must not stay in
	// memory for the sake of many short ones.
	maxPooled = 64 << 10
)

func (p *recordPool) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, firstRecord)
	return &b
}

func (p *recordPool) put(b *[]byte) {
	if cap(*b) <= maxPooled {
		p.pool.Put(b)
	}
}

var errReturned = errors.New("middleware: the handler has returned")
