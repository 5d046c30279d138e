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
	var a alarms[*lease]
	a.init(func() {})
	defer a.Clear()
	h := new(lease)
	h.entry.Due = clock.Now().Add(time.Hour)
	a.announceLook(clock.Now())
	waitsForShard := false
	a.ring(func(yield func(*lease) bool) {
		yield(h)
		h.entry.Grant()
		waitsForShard = !a.lookComesBefore(h.entry.Due) // as Table.ScheduleNew
	})
	if waitsForShard {
		a.announceLook(h.entry.Due)
	}
	require.True(t, h.entry.Queued() || clock.Moment(a.nextLook.Load()) <= h.entry.Due)
}

type lease struct{ entry Entry[*lease] }

func (h *lease) When() *clock.Schedule { return &h.entry.Schedule }
func (h *lease) Entry() *Entry[*lease] { return &h.entry }
func (*lease) Key() string             { return "" }
func (*lease) Owner() string           { return "" }
func (*lease) SameRequest(*lease) bool { return true }
func (*lease) Settles() bool           { return false }
func (*lease) Ring()                   {}
