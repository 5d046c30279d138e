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

// WriteRecord writes a record that is no tombstone.
func WriteRecord(r Record) []byte {
	var noted room
	noted.note(nil, r.Header, false)
	return closeRecord(append(newRecord(nil), r.Body...), noted.headers, r.Status, r.Sized)
}
