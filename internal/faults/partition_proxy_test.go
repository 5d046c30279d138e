package faults_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

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
		server := redistest.Start(t)
		proxy := respproxy.Start(t, server.Addr())
		newOrdeal(t, server, proxy.Addr(), p.claim, func() func() { return p.fault(t, proxy) }).requirePass(t)
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
