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
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
)

// partition is a way to lose sight of a server that is well.
type partition struct {
	name  string
	fault func(t *testing.T, p *respproxy.Proxy) (over func())
	claim error // what a claim ends with
}

var partitions = []partition{
	{"both ways", func(_ *testing.T, p *respproxy.Proxy) func() {
		p.Freeze()
		return p.Thaw
	}, lock.ErrUnknown},
	{"answers lost", func(_ *testing.T, p *respproxy.Proxy) func() {
		p.SwallowReplies(respproxy.Hang)
		return p.Clear
	}, lock.ErrUnknown},
	{"requests lost", func(_ *testing.T, p *respproxy.Proxy) func() {
		p.On(respproxy.Match{}, respproxy.Drop(respproxy.Hang))
		return p.Clear
	}, lock.ErrUnknown},
	{"refused", func(t *testing.T, p *respproxy.Proxy) func() {
		t.Helper()
		p.Down()
		return func() { p.Up(t) }
	}, lock.ErrUnavailable},
}

func TestPartitions(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "waits while requests and replies are lost")
	t.Parallel()
	abreast(t, partitions, func(p partition) string { return p.name }, func(t *testing.T, p partition) {
		t.Helper()
		requireOnePass(t, func() *ordeal {
			server := redistest.Start(t)
			proxy := respproxy.Start(t, server.Addr())
			return newOrdeal(t, server, proxy.Addr(), p.claim, func() func() { return p.fault(t, proxy) })
		})
	})
}

// twin is a store that reads silence as an answer.
type twin struct {
	name  string
	store func(lock.Store) lock.Store
	claim error
	want  string // what the ordeal says about it
}

// The same ordeal must catch these.
func TestPartitionCatches(t *testing.T) {
	testmain.SkipIn(t, testmain.Short|testmain.NewerServers, "checks the test of partitions with planted faults")
	t.Parallel()
	twins := []twin{
		{
			"a claim without an answer as not applied",
			func(s lock.Store) lock.Store { return certain{s} }, lock.ErrUnavailable, "refused by a dead claim",
		},
		{
			"a renewal without an answer as applied",
			func(s lock.Store) lock.Store { return confident{s} }, lock.ErrUnknown, "still believed",
		},
	}
	abreast(t, twins, func(w twin) string { return w.name }, func(t *testing.T, w twin) {
		t.Helper()
		var err error
		for range 5 { // on a busy machine the Locker may stop to wait before the call has ended
			server := redistest.Start(t)
			proxy := respproxy.Start(t, server.Addr())
			o := newOrdeal(t, server, proxy.Addr(), w.claim, func() func() {
				proxy.SwallowReplies(respproxy.Close)
				return proxy.Clear
			})
			o.here = process(t, w.store(open(t, proxy.URL())))
			if err = o.pass(t); err != nil {
				break
			}
		}
		require.ErrorContains(t, err, w.want)
	})
}

type certain struct{ lock.Store }

func (s certain) Claim(ctx context.Context, key string, c lock.Claim) (lock.Entry, error) {
	e, err := s.Store.Claim(ctx, key, c)
	if err != nil {
		err = errors.Join(err, lock.ErrNotApplied)
	}
	return e, err
}

type confident struct{ lock.Store }

func (s confident) Renew(ctx context.Context, key string, c lock.Claim) (bool, error) {
	ok, err := s.Store.Renew(ctx, key, c)
	return ok || err != nil, nil
}

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
