package recorder

import "sync"

// IsPooled reports whether buffers of these capacities are kept for other answers.
func IsPooled(record, headers, fields int) bool {
	var p sync.Pool
	(&buffers{record: make([]byte, 0, record), headers: make([]byte, 0, headers), fields: make([]field, 0, fields)}).release(&p)
	b, ok := p.Get().(*buffers)
	return ok && cap(b.record) == record && cap(b.headers) == headers && cap(b.fields) == fields
}
