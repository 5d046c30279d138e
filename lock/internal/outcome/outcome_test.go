package outcome_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/lock/internal/outcome"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// row answers in turn, with the last answer for ever.
type row struct {
	answers []outcome.Found
	err     error
	asked   int
	ended   int
}

func (r *row) TakeClaim(context.Context) (outcome.Found, error) {
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
		"taken":           {row: row{answers: []outcome.Found{outcome.Taken}}, asked: 1, ended: 1},
		"gone":            {row: row{answers: []outcome.Found{outcome.Gone}}, asked: 1, ended: 1},
		"settled":         {row: row{answers: []outcome.Found{outcome.Settled}}, committed: true, asked: 1},
		"locked, taken":   {row: row{answers: []outcome.Found{outcome.Locked, outcome.Taken}}, asked: 2, ended: 2},
		"locked, settled": {row: row{answers: []outcome.Found{outcome.Locked, outcome.Locked, outcome.Settled}}, committed: true, asked: 3, ended: 2},
		"no answer":       {row: row{answers: []outcome.Found{outcome.Settled}, err: errDown}, err: errDown, asked: 1},
		"locked for ever": {row: row{answers: []outcome.Found{outcome.Locked}}, err: context.DeadlineExceeded, asked: 200, ended: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second-time.Millisecond)
				defer cancel()
				committed, err := outcome.Decide(ctx, "shop", &tt.row)
				if tt.err == nil {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, "shop: asking for the outcome of COMMIT: ")
					require.ErrorContains(t, err, tt.err.Error())
					require.NotErrorIs(t, err, tt.err)
				}
				require.Equal(t, tt.committed, committed)
				require.Equal(t, []int{tt.asked, tt.ended}, []int{tt.row.asked, tt.row.ended})
			})
		})
	}
}
