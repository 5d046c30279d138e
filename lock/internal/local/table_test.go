package local_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/internal/local"
)

// lease is a lease of one key. Leases with the same request have the same print.
type lease struct {
	local.Holding

	print   string
	settles bool
}

func (*lease) Key() string                      { return "key" }
func (h *lease) Owner() string                  { return "owner of " + h.print }
func (h *lease) SameRequest(o local.Lease) bool { return h.print == o.(*lease).print }
func (h *lease) Settles() bool                  { return h.settles }
func (*lease) Ring()                            {}

// refusal is a decision for all waiters, and of a claim that found a holder.
type refusal struct{ detached int }

func (*refusal) Answers(local.Lease, bool) bool { return true }
func (*refusal) Unserved() bool                 { return false }
func (*refusal) FoundHolder() bool              { return true }
func (r *refusal) Detach()                      { r.detached++ }

func entered(t *local.Table, h *lease, patient bool) local.Entrance {
	t.Prepare(&h.Holding, h)
	return t.Enter(&h.Holding, patient)
}

// The state in which a lease finds a key of this process, and the end of its wait when its time is
// over, for each state of the holder.
func TestWhatALeaseFinds(t *testing.T) {
	t.Parallel()
	type found string
	const (
		opens, mismatch, refused = found("open"), found("mismatch"), found("refused")
		waits                    = found("waits")
	)
	pending := func(*local.Table, *lease) {}
	granted := func(_ *local.Table, h *lease) { h.Grant() }
	bypassed := func(t *local.Table, h *lease) { t.Bypass(&h.Holding) }
	ending := func(settles bool) func(*local.Table, *lease) {
		return func(table *local.Table, h *lease) {
			h.Grant()
			h.settles = settles
			table.MarkEnding(&h.Holding, func() {})
		}
	}
	for name, tt := range map[string]struct {
		holder  func(*local.Table, *lease) // nil: there is none
		print   string                     // of the lease that comes
		patient bool
		terms   local.Allowed
		found   found
		confirm bool          // it can ask for the confirmation of the holder's end
		stopped local.Stopped // if it waits
	}{
		"nobody":                          {nil, "a", false, 0, opens, false, 0},
		"a claim":                         {pending, "a", false, 0, waits, false, local.FoundPending},
		"a claim for another request":     {pending, "b", false, 0, waits, false, local.FoundPending},
		"a claim, until it is answered":   {pending, "a", true, local.AwaitAnswer, waits, false, local.StillWaiting},
		"a holder":                        {granted, "a", false, 0, refused, false, 0},
		"a holder, patiently":             {granted, "a", true, 0, waits, false, local.FoundHeld},
		"a holder, not to be usurped":     {granted, "a", true, local.Usurp, waits, false, local.FoundHeld},
		"a holder for another request":    {granted, "b", true, 0, mismatch, false, 0},
		"a release":                       {ending(false), "a", false, 0, waits, true, local.FoundEnding},
		"a release for another request":   {ending(false), "b", false, 0, waits, true, local.FoundEnding},
		"a release that may be usurped":   {ending(false), "a", false, local.Usurp, waits, true, local.Usurped},
		"a settle":                        {ending(true), "a", false, 0, waits, true, local.FoundEnding},
		"a settle for another request":    {ending(true), "b", false, 0, mismatch, false, 0},
		"a settle that may be usurped":    {ending(true), "a", false, local.Usurp, waits, true, local.Usurped},
		"unprotected work":                {bypassed, "b", false, 0, refused, false, 0},
		"unprotected work, with patience": {bypassed, "b", true, 0, waits, false, local.FoundHeld},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := local.New()
			holder, h := &lease{print: "a"}, &lease{print: tt.print}
			if tt.holder != nil {
				require.True(t, entered(table, holder, false).Open)
				tt.holder(table, holder)
			}
			e := entered(table, h, tt.patient)
			got := refused
			switch {
			case e.Open:
				got = opens
			case e.Mismatch:
				got = mismatch
			case e.Waiter != nil:
				got = waits
			}
			require.Equal(t, tt.found, got)
			require.Equal(t, tt.confirm, e.ConfirmEnd != nil)
			if tt.found != opens {
				require.Equal(t, "owner of a", e.Owner)
			}
			if e.Waiter == nil {
				return
			}
			require.Equal(t, tt.stopped, table.StopWaiting(e.Waiter, tt.terms))
			if tt.stopped == local.Usurped {
				usurped, settles := e.Waiter.Usurped()
				require.Same(t, holder, usurped)
				require.Equal(t, holder.settles, settles)
				table.Leave(&holder.Holding) // is no longer its key
				require.False(t, entered(table, &lease{print: "b"}, false).Open)
			}
		})
	}
}

// The key goes to the waiters in the order of their arrival, and is free after the last.
func TestKeyGoesToTheNext(t *testing.T) {
	t.Parallel()
	table := local.New()
	first, second, third := &lease{print: "a"}, &lease{print: "a"}, &lease{print: "a"}
	require.True(t, entered(table, first, false).Open)
	first.Grant()
	w2, w3 := entered(table, second, true).Waiter, entered(table, third, true).Waiter
	table.Leave(&first.Holding)
	<-w2.Ready()
	require.Nil(t, w2.Decided())
	require.True(t, w2.FoundHolder(), "it has waited for a holder")
	require.Equal(t, local.FoundGiven, table.StopWaiting(w2, 0))
	table.Leave(&first.Holding) // again: it is not its key
	require.Equal(t, local.FoundHeld, table.CancelWait(w3))
	second.Grant()
	table.Leave(&second.Holding)
	require.True(t, entered(table, &lease{}, false).Open)
}

// A waiter that leaves just after it was given the key gives it to the next.
func TestCancelledWaitPassesTheKeyOn(t *testing.T) {
	t.Parallel()
	table := local.New()
	first := &lease{print: "a"}
	require.True(t, entered(table, first, false).Open)
	first.Grant()
	w2, w3 := entered(table, &lease{print: "a"}, true).Waiter, entered(table, &lease{print: "a"}, true).Waiter
	table.Leave(&first.Holding)
	require.Equal(t, local.FoundGiven, table.CancelWait(w2))
	<-w3.Ready()
	require.Nil(t, w3.Decided())
}

// A lease that was admitted past another one, which claims its key here, is kept apart, and
// has the key after it, with its queue.
func TestAdmittedLease(t *testing.T) {
	t.Parallel()
	table := local.New()
	alone := &lease{print: "a"}
	table.Prepare(&alone.Holding, alone)
	table.Admit(&alone.Holding)
	alone.Grant()
	require.Equal(t, "owner of a", entered(table, &lease{print: "a"}, false).Owner, "the key was free here")
	table.Leave(&alone.Holding)

	claims, resumed, brief, waits := &lease{print: "a"}, &lease{print: "b"}, &lease{print: "c"}, &lease{print: "a"}
	require.True(t, entered(table, claims, true).Open)
	asked := table.Rest(&claims.Holding, nil)
	w := entered(table, waits, true).Waiter
	for _, h := range []*lease{resumed, brief} {
		table.Prepare(&h.Holding, h)
		table.Admit(&h.Holding)
		h.Grant()
	}
	require.Len(t, slices.Collect(table.Keys()), 3)
	table.Leave(&brief.Holding)
	require.Len(t, asked, 1, "the one that claims asks the store again")
	confirmed := 0
	table.MarkEnding(&resumed.Holding, func() { confirmed++ })
	require.Equal(t, "owner of a", entered(table, &lease{print: "a"}, false).Owner)

	table.Leave(&claims.Holding)
	e := entered(table, &lease{print: "b"}, false)
	require.Equal(t, "owner of b", e.Owner)
	e.ConfirmEnd()
	require.Equal(t, 1, confirmed)
	table.Leave(&resumed.Holding)
	<-w.Ready()
	require.Nil(t, w.Decided())
	require.Len(t, slices.Collect(table.Keys()), 1)
}

// A refused claim is the answer to all that have met it, who may change nothing that its first
// caller has.
func TestDecisionIsOfAllThatHaveMetTheClaim(t *testing.T) {
	t.Parallel()
	table := local.New()
	first := &lease{print: "a"}
	require.True(t, entered(table, first, false).Open)
	w2, w3 := entered(table, &lease{print: "a"}, false).Waiter, entered(table, &lease{print: "b"}, false).Waiter
	d := new(refusal)
	table.LeaveWith(&first.Holding, func() local.Decision { return d })
	for _, w := range []*local.Waiter{w2, w3} {
		<-w.Ready()
		require.Same(t, d, w.Decided())
		require.Equal(t, local.FoundDecided, table.StopWaiting(w, local.Usurp))
	}
	require.Equal(t, 1, d.detached)
	require.True(t, entered(table, &lease{}, false).Open)
}
