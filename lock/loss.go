package lock

import (
	"fmt"
	"time"
)

// loss is why a lease was lost. It matches ErrLost.
type loss struct {
	class, reason string
	do            string // for the operator who reads of it
}

func (l *loss) Error() string { return ErrLost.Error() + ": " + l.reason }
func (*loss) Unwrap() error   { return ErrLost }

// orNil is l as an error, nil if there was no loss.
func (l *loss) orNil() error {
	if l == nil {
		return nil
	}
	return l
}

// Class is a short and stable name of the reason, to count by.
func (l *loss) Class() string { return l.class }

var (
	errTaken = &loss{
		"taken", "another process took or removed the entry",
		"two may have worked at once: compare what they wrote. If nobody freed the entry by hand, the server has evicted it, " +
			"lost it in a failover, or was flushed",
	}
	errExpired = &loss{
		"expired", "it could not be renewed in time",
		"the store has not answered for most of a lease, or this process was paused for as long: see to either, " +
			"and have what is written to refuse older fences",
	}
)

func lossByMaxHold(d time.Duration) *loss {
	return &loss{
		"max_hold", fmt.Sprintf("it was held for its maximum of %v", d),
		"find out why the work took so long, or give it longer by WithMaxHold",
	}
}
