package sqlitestore

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// question asks for the receipt of a key in the database.
type question struct {
	key []byte
	row *rowstore.Row // the answer
}

// committed returns the living receipt that the work of a key has committed. No claim replaces it, and it
// answers also while the file of claims is locked or lost. ok is false if there is none, or if the database
// does not answer: the claim itself finds out why.
func (s *Store) committed(ctx context.Context, key string) (e lock.Entry, ok bool) {
	if s.file.Load() == nil {
		return e, false // the first call finds the file by a connection of the work
	}
	c, err := s.questions.Enter(ctx, &question{key: []byte(key)})
	if err != nil {
		return e, false
	}
	select {
	case <-c.Done():
	default: // ctx has ended
		return e, false
	}
	if c.Err != nil || c.Of.row.State() != lock.Settled {
		return e, false
	}
	return c.Of.row.Entry(), true
}

// readReceipts answers the questions in the queue, over a connection that only reads.
func (s *Store) readReceipts(ctx context.Context) {
	calls, _ := s.questions.Take(func(*question) bool { return true })
	var err error
	if s.reads == nil {
		s.reads, err = s.openReads(ctx)
	}
	for _, c := range calls {
		if err == nil {
			c.Of.row, err = read(ctx, s.reads.settled, c.Of.key, time.Now().UnixMicro())
		}
		c.End(err)
	}
	if err != nil { // the next questions open the file anew
		s.reads.close()
		s.reads = nil
	}
}
