package client

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

var errAttemptOver = errors.New("client: the attempt that this body was for is over")

// body is the source of the bodies of all attempts.
type body struct {
	req   *http.Request
	saved *savedBody // nil unless the bytes are kept while they are sent
}

func newBody(req *http.Request, limit int64) body {
	b := body{req: req}
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil && req.ContentLength <= limit && limit > 0 {
		b.saved = &savedBody{source: req.Body, limit: limit, reading: make(chan struct{}, 1)}
	}
	return b
}

func (b body) empty() bool { return b.req.Body == nil || b.req.Body == http.NoBody }

// first returns the body of the first attempt.
func (b body) first() io.ReadCloser {
	if b.saved != nil {
		return b.saved.attempt()
	}
	return b.req.Body
}

// repeatable reports whether there can be another attempt.
func (b body) repeatable() bool {
	return b.empty() || b.req.GetBody != nil || b.saved != nil && b.saved.repeatable()
}

// next returns the body of another attempt. The previous attempt is over.
func (b body) next() (io.ReadCloser, error) {
	switch {
	case b.empty():
		return b.req.Body, nil
	case b.saved != nil:
		return b.saved.attempt(), nil
	default:
		return b.req.GetBody()
	}
}

// finish notes that there is an answer. After that, another attempt can follow only if the answer
// breaks off and the request body was read to its end.
func (b body) finish() {
	if b.saved != nil {
		b.saved.finish()
	}
}

// savedBody is a body that can be read only once, together with the bytes that were read so far.
// Each attempt sends these bytes first, and continues reading where the previous attempt stopped.
// savedBody does not read ahead, because the source may be waiting for an answer.
type savedBody struct {
	source io.ReadCloser
	limit  int64
	lost   atomic.Bool // the source has failed, or had more than limit
	whole  atomic.Bool // the source has been read to its end, and all of it is kept

	reading chan struct{} // has room for one: the reader of source
	start   []byte        // the bytes read of source, unless they are more than limit
	total   int           // number of bytes read of source
	end     error         // the error that ended source: io.EOF or a failure

	mu       sync.Mutex
	current  *savedReader
	finished bool
	closing  sync.Once
}

func (k *savedBody) attempt() io.ReadCloser {
	r := &savedReader{kept: k}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current != nil {
		k.current.over.Store(true)
	}
	k.current = r
	return r
}

func (k *savedBody) repeatable() bool {
	k.mu.Lock()
	finished := k.finished
	k.mu.Unlock()
	return !k.lost.Load() && (!finished || k.whole.Load())
}

// finish gives the source to the last attempt. The source is closed when this attempt closes its
// body, which can be after the answer has come.
func (k *savedBody) finish() {
	k.mu.Lock()
	k.finished = true
	over := k.current.over.Load()
	k.mu.Unlock()
	if over {
		k.close()
	}
}

// close closes the source. The error of the source does not matter.
func (k *savedBody) close() { k.closing.Do(func() { _ = k.source.Close() }) }

// savedReader is the body of one attempt.
type savedReader struct {
	kept *savedBody
	over atomic.Bool
	read int // number of bytes of the body
}

func (r *savedReader) Read(p []byte) (int, error) {
	k := r.kept
	// The previous attempt may still be waiting for the source. The bytes that it then reads are
	// saved, and this attempt reads them next.
	k.reading <- struct{}{}
	defer func() { <-k.reading }()
	switch {
	case r.over.Load():
		return 0, errAttemptOver
	case r.read < len(k.start):
		n := copy(p, k.start[r.read:])
		r.read += n
		return n, nil
	case r.read < k.total:
		// The previous attempt has read more than is kept.
		return 0, errAttemptOver
	case k.end != nil:
		return 0, k.end
	}
	n, err := k.source.Read(p)
	r.read += n
	k.note(p[:n], err)
	return n, err
}

// note keeps p, and err if the source has ended.
func (k *savedBody) note(p []byte, err error) {
	k.total += len(p)
	if !k.lost.Load() {
		if int64(len(k.start)+len(p)) > k.limit {
			k.lost.Store(true)
			k.start = nil
		} else {
			k.start = append(k.start, p...)
		}
	}
	if err != nil {
		k.end = err
		if errors.Is(err, io.EOF) {
			k.whole.Store(true)
		} else {
			k.lost.Store(true)
		}
	}
}

func (r *savedReader) Close() error {
	k := r.kept
	k.mu.Lock()
	r.over.Store(true)
	last := k.finished && k.current == r
	k.mu.Unlock()
	if last {
		k.close()
	}
	return nil
}
