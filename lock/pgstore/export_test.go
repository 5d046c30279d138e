package pgstore

import (
	"context"
	"time"
)

// EndIdle ends an idle session that has sent COMMIT at a moment.
func (s *Store) EndIdle(ctx context.Context, pid uint32, sent time.Time) { s.endIdle(ctx, pid, sent) }
