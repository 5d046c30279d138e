package faults_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/cutproxy"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
)

// slowly has a line carry a receipt of a megabyte in ten seconds.
func slowly(line *cutproxy.Proxy, dir cutproxy.Direction) {
	line.Pace(dir, 10<<10, 100*time.Millisecond)
}

// A receipt that the line does not carry within a budget, in either direction:
// no call waits for it, nothing runs twice, and nothing is lost.
func TestSlowLine(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	line := cutproxy.Start(t, server.Addr())
	here := process(t, open(t, "redis://"+line.Addr()))
	there := process(t, open(t, server.URL()))
	answer := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var runs atomic.Int64
	var receipt []byte
	ask := func(l *lock.Locker) (err error) {
		require.NoError(t, inTime(func() {
			receipt, _, err = l.Once(t.Context(), "order", nil, func(context.Context) ([]byte, error) {
				runs.Add(1)
				slowly(line, cutproxy.Request)
				return answer, nil
			})
		}))
		return err
	}

	require.NoError(t, again(t, func() error { return ask(here) }), "the answer does not wait for its receipt")
	require.Equal(t, answer, receipt)
	require.ErrorIs(t, again(t, func() error { return ask(there) }), lock.ErrHeld, "what has run is not run again")

	line.Pace(cutproxy.Request, 0, 0)
	until(t, func() bool { return ask(there) == nil })
	require.True(t, bytes.Equal(answer, receipt))

	slowly(line, cutproxy.Response)
	began := time.Now()
	require.ErrorIs(t, ask(here), lock.ErrUnavailable)
	t.Logf("gave a receipt of %d bytes up after %v", len(answer), time.Since(began))
	line.Pace(cutproxy.Response, 0, 0)
	until(t, func() bool {
		err := ask(here)
		require.True(t, err == nil || errors.Is(err, lock.ErrUnavailable), "%v", err)
		return err == nil
	})
	require.True(t, bytes.Equal(answer, receipt))
	require.EqualValues(t, 1, runs.Load())
	require.Len(t, server.Keys(t), 1)
}
