package middleware

// RoomIsPooled reports whether an answer's room of that size is kept for others.
func RoomIsPooled(answer, headers, sent int) bool {
	var p roomPool
	p.put(&room{record: make([]byte, 0, answer), headers: make([]byte, 0, headers), sent: make([]field, 0, sent)})
	r := p.get()
	return cap(r.record) == answer && cap(r.headers) == headers && cap(r.sent) == sent
}

// SetOnce says that a guard processes the request of p once, however often it is sent.
func SetOnce(p *Problem, once bool) { p.once = once }
