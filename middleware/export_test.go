package middleware

import "net/http"

// Record is what the fuzz test of records sees of one.
type Record struct {
	Status           int
	Tombstone, Sized bool
	Body             []byte
	Header           http.Header
}

// ReadRecord reads a record as a replay does.
func ReadRecord(b []byte) (Record, error) {
	r, err := readRecord(b)
	if err != nil {
		return Record{}, err
	}
	h := make(http.Header)
	r.setHeader(h)
	return Record{r.status, r.tombstone, r.sized, r.body, h}, nil
}

// RoomIsPooled reports whether an answer's room of that size is kept for others.
func RoomIsPooled(record, headers, sent int) bool {
	var p roomPool
	p.put(&room{record: make([]byte, 0, record), headers: make([]byte, 0, headers), sent: make([]field, 0, sent)})
	r := p.get()
	return cap(r.record) == record && cap(r.headers) == headers && cap(r.sent) == sent
}

// WriteRecord writes a record that is no tombstone.
func WriteRecord(r Record) []byte {
	var noted room
	noted.note(nil, r.Header, false)
	return closeRecord(append(newRecord(nil), r.Body...), noted.headers, r.Status, r.Sized)
}

// SendOnConsole sends data as the page called name, or as JSON, as the console does.
func SendOnConsole(w http.ResponseWriter, r *http.Request, name string, data any) {
	(&consoleAnswer{w: w, r: r}).send(http.StatusOK, name, data)
}
