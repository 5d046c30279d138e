package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/faketx"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/virtual"
	"github.com/httplatch/httplatch/internal/tickettext"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/testkit/fault"
)

// A change may write to the receipt that it gets. The store compares the receipt that was read.
func TestAmendThatChangesTheReceiptInPlace(t *testing.T) {
	solo(t, func(t *testing.T, _ *fault.Store, l *lock.Locker) {
		run := begun(t, l, key)
		ticket := must.Get(run.Ticket())(t)
		must.Run(t)(run.Settle(t.Context(), []byte("open")))
		require.NoError(t, l.Amend(t.Context(), ticket, func(receipt []byte) ([]byte, error) {
			copy(receipt, "done")
			return receipt, nil
		}))
		require.Equal(t, "done", must.Replay(t)(l.Once(t.Context(), key, print1, nil)))
	}, lock.WithKeep(keep))
}

// freeAndUnfinished leaves a free submission with a step, and returns its ticket.
func freeAndUnfinished(t *testing.T, s *fault.Store, l *lock.Locker) (ticket string) {
	t.Helper()
	failed := errors.New("sold out")
	_, _, err := l.Once(t.Context(), key, print1, func(ctx context.Context) ([]byte, error) {
		_, err := lock.Step(ctx, "charge", answerWith([]byte("charged")))
		return nil, errors.Join(err, failed)
	})
	require.ErrorIs(t, err, failed)
	time.Sleep(time.Second)
	require.Equal(t, lock.Free, s.State(t, record).State)
	return unfinishedTicket(t, s)
}

// abandonedAndUnfinished leaves a submission whose process has vanished, and returns its ticket.
func abandonedAndUnfinished(t *testing.T, s *fault.Store, _ *lock.Locker) (ticket string) {
	t.Helper()
	abandoned(t, s)
	return unfinishedTicket(t, s)
}

// unfinishedTicket returns the ticket of the one submission that is unfinished.
func unfinishedTicket(t *testing.T, s *fault.Store) string {
	t.Helper()
	all := listed(t, lock.New(s.Server(), lock.WithLogger(quiet), lock.WithKeep(keep)).Unfinished(t.Context()))
	require.Len(t, all, 1)
	require.NotEmpty(t, all[0].Ticket)
	return all[0].Ticket
}

// An amend whose change fails leaves a free submission free, and does not claim it.
func TestAmendThatFailsKeepsNoKey(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		failed := errors.New("the provider does not know yet")
		require.ErrorIs(t, l.Amend(t.Context(), freeAndUnfinished(t, s, l), func([]byte) ([]byte, error) { return nil, failed }), failed)
		require.Equal(t, lock.Free, s.State(t, record).State)
	}, lock.WithKeep(keep))
}

// An amend of a free submission goes on to its receipt, however slow the store is, and however long its change
// takes: the claim does not wait for the change.
func TestSlowAmendOfAFreeSubmission(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		ticket := freeAndUnfinished(t, s, l)
		s.Every(fault.Slow(budget*3/10), fault.Get, fault.Claim, fault.Settle)
		ctx := within(t, 10*time.Minute)
		require.NoError(t, l.Amend(ctx, ticket, func([]byte) ([]byte, error) {
			time.Sleep(time.Minute) // longer than a lease
			return []byte("done"), nil
		}))
		require.Equal(t, []byte("done"), s.State(t, record).Receipt)
	}, lock.WithKeep(keep))
}

// An amend whose claim gets no answer refuses the repeats of the submission for one lease, and not for the keep. One
// whose read gets no answer has changed nothing, for certain.
func TestAmendWhoseClaimIsNotAnswered(t *testing.T) {
	solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
		ticket := freeAndUnfinished(t, s, l)
		s.Every(fault.LoseReply, fault.Get)
		err := l.Amend(t.Context(), ticket, nil)
		require.ErrorIs(t, err, lock.ErrUnavailable)
		require.NotErrorIs(t, err, lock.ErrUnknown)
		s.Every(nil)
		s.Every(fault.LoseReply, fault.Claim)
		require.ErrorIs(t, l.Amend(t.Context(), ticket, func([]byte) ([]byte, error) { return []byte("done"), nil }), lock.ErrUnknown)
		require.Equal(t, lock.Held, s.State(t, record).State)
		time.Sleep(time.Minute)
		require.Equal(t, lock.Free, s.State(t, record).State)
	}, lock.WithKeep(keep))
}

// A submission without a receipt, free or abandoned, gets the receipt that the change returns for nil: the
// change is made once, not again to its own result.
func TestAmendOfASubmissionWithoutAReceiptIsMadeOnce(t *testing.T) {
	for name, unfinished := range map[string]func(*testing.T, *fault.Store, *lock.Locker) string{
		"free": freeAndUnfinished, "abandoned": abandonedAndUnfinished,
	} {
		t.Run(name, func(t *testing.T) {
			solo(t, func(t *testing.T, s *fault.Store, l *lock.Locker) {
				require.NoError(t, l.Amend(t.Context(), unfinished(t, s, l), func(receipt []byte) ([]byte, error) {
					return append(receipt, "refunded "...), nil
				}))
				require.Equal(t, "refunded ", string(s.State(t, record).Receipt))
			}, lock.WithKeep(keep))
		})
	}
}

// amender is a transactional store that can replace receipts, and has none to replace.
type amender struct{ *faketx.Store }

func (amender) Amend(context.Context, string, string, []byte, []byte) (bool, error) {
	return false, nil
}

// An amend in the transaction of other work claims no free submission: the claim would not be part of the transaction.
func TestAmendOfAFreeSubmissionInATransaction(t *testing.T) {
	virtual.Run(t, func(t *testing.T) {
		s := faketx.New()
		l := lock.New(amender{s}, lock.WithLogger(quiet), lock.WithTransaction())
		free := tickettext.Ticket{Name: record, Token: "token", Until: time.Time{}}
		ticket, ok := free.Write(tickettext.Answer)
		require.True(t, ok)
		must.Run(t)(l.Once(t.Context(), "other", nil, func(ctx context.Context) ([]byte, error) {
			require.ErrorIs(t, l.Amend(ctx, ticket, func([]byte) ([]byte, error) { return []byte("done"), nil }), lock.ErrAbandoned)
			return nil, nil
		}))
		require.Equal(t, 1, s.Count(faketx.Claim), "of the other work")
		require.NoError(t, l.Close(t.Context()))
	})
}
