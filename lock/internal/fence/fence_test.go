package fence_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/lock/internal/fence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// row answers in turn, with the last answer for ever.
type row struct {
	answers []fence.Found
	err     error
	asked   int
	ended   int
}

func (r *row) Fence(context.Context) (fence.Found, error) {
	found := r.answers[min(r.asked, len(r.answers)-1)]
	r.asked++
	return found, r.err
}

func (r *row) EndIdle(context.Context) { r.ended++ }

func TestDecide(t *testing.T) {
	t.Parallel()
	errDown := errors.New("down")
	for name, tt := range map[string]struct {
		row       row
		committed bool
		err       error
		asked     int
		ended     int
	}{
		"taken":           {row: row{answers: []fence.Found{fence.Taken}}, asked: 1, ended: 1},
		"gone":            {row: row{answers: []fence.Found{fence.Gone}}, asked: 1, ended: 1},
		"settled":         {row: row{answers: []fence.Found{fence.Settled}}, committed: true, asked: 1},
		"locked, taken":   {row: row{answers: []fence.Found{fence.Locked, fence.Taken}}, asked: 2, ended: 2},
		"locked, settled": {row: row{answers: []fence.Found{fence.Locked, fence.Locked, fence.Settled}}, committed: true, asked: 3, ended: 2},
		"no answer":       {row: row{answers: []fence.Found{fence.Settled}, err: errDown}, err: errDown, asked: 1},
		"locked for ever": {row: row{answers: []fence.Found{fence.Locked}}, err: context.DeadlineExceeded, asked: 200, ended: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second-time.Millisecond)
				defer cancel()
				committed, err := fence.Decide(ctx, &tt.row)
				require.ErrorIs(t, err, tt.err)
				require.Equal(t, tt.committed, committed)
				require.Equal(t, []int{tt.asked, tt.ended}, []int{tt.row.asked, tt.row.ended})
			})
		})
	}
}
