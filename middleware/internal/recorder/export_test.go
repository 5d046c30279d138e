package recorder

// IsPooled reports whether buffers of these capacities are kept for other answers.
func IsPooled(record, headers, fields int) bool {
	var p pool
	p.put(&buffers{record: make([]byte, 0, record), headers: make([]byte, 0, headers), fields: make([]field, 0, fields)})
	b := p.get()
	return cap(b.record) == record && cap(b.headers) == headers && cap(b.fields) == fields
}
