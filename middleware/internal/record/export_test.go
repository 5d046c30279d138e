package record

import "net/http/httptest"

// IsPooled reports whether the buffers of an answer of these capacities are kept for other answers.
func IsPooled(record, headers, fields int) bool {
	var s Settings
	a := Answer{
		Status: 201, settings: &s, out: httptest.NewRecorder(), record: make([]byte, len(Prefix), record),
		buffers: &buffers{headers: make([]byte, 0, headers), fields: make([]field, 0, fields)},
	}
	a.Send()
	b, ok := s.buffers.Get().(*buffers)
	return ok && cap(b.record) == record && cap(b.headers) == headers && cap(b.fields) == fields
}
