package lock

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/httplatch/httplatch/internal/carry"
)

// flight follows the store calls that carry a claim of one token. Until they
// have returned, and what they left behind has arrived, their commands may still
// be written. What was answered by then cannot take effect any more; for the
// rest, how long it may still land counts from then.
type flight struct {
	under    atomic.Int32           // on their way
	lost     atomic.Bool            // one had no answer, and will have none
	returned atomic.Int64           // the moment in which the last one did
	arrived  atomic.Pointer[func()] // called when none is on its way any more
	minority minority               // of a quorum
	try      carry.Try              // of the first send
}

// landed reports whether nothing of it can take effect any more: all of it has
// returned, and what had no answer did so lag ago or more.
func (f *flight) landed(lag time.Duration) bool {
	return f.under.Load() == 0 && (!f.lost.Load() || moment(f.returned.Load()).since() >= lag)
}

// pending reports whether it may yet turn out that all of it was answered.
func (f *flight) pending() bool { return f != nil && f.under.Load() > 0 && !f.lost.Load() }

// whenArrived has do called, soon, when nothing is on its way any more. It may
// be called twice.
func (f *flight) whenArrived(do func()) {
	f.arrived.Store(&do)
	if f.under.Load() == 0 {
		do()
	}
}

// returns counts a call that has returned with err. One that left its command
// behind has counted that.
func (f *flight) returns(err error) {
	f.arrive(err == nil || errors.Is(err, ErrNotApplied) || isLeft(err))
}

func isLeft(err error) bool {
	_, left := errors.AsType[*carry.LeftError](err)
	return left
}

// arrive counts one that is not on its way any more. certain says that it was
// answered, or never written.
func (f *flight) arrive(certain bool) {
	if !certain {
		f.lost.Store(true)
	}
	f.returned.Store(int64(now()))
	if f.under.Add(-1) > 0 {
		return
	}
	if do := f.arrived.Load(); do != nil {
		(*do)()
	}
}
