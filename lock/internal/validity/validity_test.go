package validity_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/validity"
)

// play is a validity of 10 s from now on, to be renewed after 3 s, and the alarms that it sets.
type play struct {
	validity.Validity

	began clock.Moment
	set   []time.Duration // when the alarms are due, from the begin on
}

func newPlay(capped bool) *play {
	p := &play{began: clock.Now()}
	p.Start(p, p.at(10), p.at(3), capped)
	return p
}

func (p *play) at(seconds int) clock.Moment { return p.began.Add(time.Duration(seconds) * time.Second) }

// SetAlarm implements validity.Alarm.
func (p *play) SetAlarm(due clock.Moment) { p.set = append(p.set, time.Duration(due-p.began)) }

// ring returns the action that is due after a number of seconds.
func (p *play) ring(t *testing.T, seconds int) string {
	t.Helper()
	switch due := p.Ring(t.Context(), p.at(seconds)); {
	case due.Renewal != nil:
		return "renewal"
	case due.Expired && p.State().Capped:
		return "max hold"
	case due.Expired:
		return "not renewed"
	case due.Opens:
		return "opens"
	default:
		return "nothing"
	}
}

// The clock and the noted facts decide which action is due, so one alarm too many does no harm.
func TestWhatIsDue(t *testing.T) {
	t.Parallel()
	const nothing = "nothing"
	begin := func(t *testing.T, p *play) { require.Equal(t, "renewal", p.ring(t, 3)) }
	for name, tt := range map[string]struct {
		capped bool
		before func(t *testing.T, p *play)
		due    map[int]string // by the second of one alarm
		alarms []time.Duration
	}{
		"a lease that is held":   {due: map[int]string{2: nothing, 3: "renewal", 9: "renewal", 10: "not renewed"}},
		"it cannot be prolonged": {capped: true, due: map[int]string{3: nothing, 9: nothing, 10: "max hold"}},
		"while it is renewed":    {before: begin, due: map[int]string{4: nothing, 10: "not renewed"}, alarms: []time.Duration{10 * time.Second}},
		"after a renewal that was not answered": {
			before: func(t *testing.T, p *play) { begin(t, p); p.EndRenewal(p.at(6)) },
			due:    map[int]string{5: nothing, 6: "renewal", 10: "not renewed"},
			alarms: []time.Duration{10 * time.Second, 6 * time.Second},
		},
		"after a renewal that was answered": {
			before: func(t *testing.T, p *play) {
				begin(t, p)
				_, _ = p.Prolong(p.at(13), p.at(6), false)
				p.EndRenewal(p.at(6))
			},
			due:    map[int]string{10: "renewal", 13: "not renewed"},
			alarms: []time.Duration{10 * time.Second, 6 * time.Second},
		},
		"after one that reached the maximum hold": {
			before: func(t *testing.T, p *play) {
				begin(t, p)
				_, _ = p.Prolong(p.at(12), p.at(6), true)
				p.EndRenewal(p.at(6))
			},
			due:    map[int]string{6: nothing, 11: nothing, 12: "max hold"},
			alarms: []time.Duration{10 * time.Second, 12 * time.Second},
		},
		"a late answer does not shorten it": {
			before: func(_ *testing.T, p *play) { _, _ = p.Prolong(p.at(9), p.at(5), false) },
			due:    map[int]string{3: "renewal", 9: "renewal", 10: "not renewed"},
		},
		"while it is released": {before: func(_ *testing.T, p *play) { _, _ = p.End(false) }, due: map[int]string{3: nothing, 10: nothing}},
		"while it is settled":  {before: func(_ *testing.T, p *play) { _, _ = p.End(true) }, due: map[int]string{3: "renewal", 10: "not renewed"}},
		"a settle without an answer whose entry is gone": {
			before: func(t *testing.T, p *play) { _, _ = p.End(true); require.False(t, p.Gone()) },
			due:    map[int]string{3: nothing, 10: nothing},
		},
		"after the answer to its end": {
			before: func(t *testing.T, p *play) { _, _ = p.End(true); require.False(t, p.Close()) },
			due:    map[int]string{3: nothing, 10: nothing},
		},
		"after the end of work that ran unprotected": {
			before: func(t *testing.T, p *play) {
				p.Bypass(p, p.at(7))
				require.True(t, p.Close(), "it would have opened")
				require.False(t, p.Close())
			},
			due:    map[int]string{3: nothing, 10: nothing},
			alarms: []time.Duration{7 * time.Second},
		},
		"after its loss": {
			before: func(_ *testing.T, p *play) { _, _ = p.Lose(errors.New("loss")) },
			due:    map[int]string{3: nothing, 10: nothing},
		},
		"work that runs unprotected": {
			before: func(_ *testing.T, p *play) { p.Bypass(p, p.at(7)) },
			due:    map[int]string{3: nothing, 7: "opens"},
			alarms: []time.Duration{7 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for second, want := range tt.due {
				p := newPlay(tt.capped)
				if tt.before != nil {
					tt.before(t, p)
				}
				require.Equal(t, tt.alarms, p.set)
				require.Equal(t, want, p.ring(t, second), "after %d s", second)
			}
		})
	}
}

// The first loss counts, and there is no loss after the answer to the end.
func TestLossIsNotedOnce(t *testing.T) {
	t.Parallel()
	p := newPlay(false)
	first, second := errors.New("first"), errors.New("second")
	lost, is := p.Lose(first)
	require.Equal(t, first, lost)
	require.True(t, is)
	lost, is = p.Lose(second)
	require.Equal(t, first, lost)
	require.False(t, is)
	lost, is = p.End(false)
	require.Equal(t, first, lost)
	require.True(t, is)

	p = newPlay(false)
	_, _ = p.End(false)
	p.Close()
	lost, is = p.Lose(first)
	require.NoError(t, lost)
	require.False(t, is)
}

// The context of a renewal outlives the caller of the work, and ends with the renewals.
func TestRenewalsOutliveTheCaller(t *testing.T) {
	t.Parallel()
	p := newPlay(false)
	caller, leave := context.WithCancel(t.Context())
	renewal := p.Ring(caller, p.at(3)).Renewal
	leave()
	require.NoError(t, renewal.Err())
	p.Halt()
	require.Error(t, renewal.Err())
}
