package redisstore

import (
	"context"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// stubFor is how long the last fence of a released entry is remembered, in ms.
// Fences follow the server's clock, so this only matters when that is set back.
const stubFor = 60_000

// Renew prolongs the lease of c.Token, and its linger if c.Linger is longer than
// the entry's. It works when the server is out of memory.
func (s *Store) Renew(ctx context.Context, key string, c lock.Claim) (ok bool, err error) {
	return s.change(ctx, renewScript, key, c.Token, c.Token, max(milliseconds(c.Lease), 1), milliseconds(c.Linger))
}

// Settle leaves a receipt for keep. It works when the server is out of memory.
func (s *Store) Settle(ctx context.Context, key, token string, receipt []byte, keep time.Duration) (ok bool, err error) {
	return s.change(ctx, settleScript, key, token, s.published(token, max(milliseconds(keep), 1), receipt)...)
}

// Release removes the entry of token unless it is a receipt. It works when the
// server is out of memory.
func (s *Store) Release(ctx context.Context, key, token string) (ok bool, err error) {
	return s.remove(ctx, key, token, "")
}

// Forget removes the entry of token, a receipt too.
func (s *Store) Forget(ctx context.Context, key, token string) (ok bool, err error) {
	return s.remove(ctx, key, token, prefixOf(stateSettled, token))
}

// remove removes an entry that token holds, and one that begins with settled if
// that is not empty.
func (s *Store) remove(ctx context.Context, key, token, settled string) (bool, error) {
	return s.change(ctx, removeScript, key, token, s.published(prefixOf(stateHeld, token), settled, stubFor, stubTail)...)
}

// change runs a script that does something to the entry of token, if there is
// one, and answers 1 or 0.
func (s *Store) change(ctx context.Context, sc script, key, token string, args ...any) (bool, error) {
	if len(token) == 0 || len(token) > 255 {
		return false, nil // no entry bears it
	}
	name, _ := s.name(key)
	answer, err := eval(ctx, s.to, sc, name, args...)
	if err != nil {
		return false, err
	}
	switch answer {
	case int64(1):
		return true, nil
	case int64(0):
		return false, nil
	default:
		return false, badAnswer(answer)
	}
}
