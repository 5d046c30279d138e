package local //nolint:testpackage // from outside, no test can stop a look

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/internal/clock"
)

// A lease that is granted while the alarms look for new leases is found, or makes them look again.
// A test from outside that granted thousands of leases at the moment of a look missed the fault in
// half of its runs.
func TestALeaseGrantedDuringTheLookIsRenewed(t *testing.T) {
	t.Parallel()
	var a alarms
	a.init(func() {})
	defer a.Clear()
	h := new(Holding)
	h.Due = clock.Now().Add(time.Hour)
	a.announceLook(clock.Now())
	waitsForShard := false
	a.ring(func(yield func(*Holding) bool) {
		yield(h)
		h.Grant()
		waitsForShard = !a.lookComesBefore(h.Due) // as Table.ScheduleNew
	})
	if waitsForShard {
		a.announceLook(h.Due)
	}
	require.True(t, h.Queued() || clock.Moment(a.nextLook.Load()) <= h.Due)
}
