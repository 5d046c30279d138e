package faults_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// ordeal is a fault that two processes go through at once.
type ordeal struct {
	server *redistest.Server
	here   *lock.Locker
	there  *lock.Locker
	fault  func() (over func())
	// claim is the error of a claim of here during the fault: ErrUnknown, or ErrUnavailable for a
	// claim that certainly was not applied.
	claim error
	reads bool // the server refuses writes only

	observed struct{ fault, calls, notified, again, others time.Duration } // for the report
}

// newOrdeal: here has a store that Open has made, there one over a client as
// its users make it.
func newOrdeal(t *testing.T, server *redistest.Server, addr string, claim error, fault func() (over func())) *ordeal {
	t.Helper()
	return &ordeal{
		server: server,
		here:   process(t, open(t, "redis://"+addr)),
		there:  process(t, overClient(t, addr)),
		fault:  fault,
		claim:  claim,
	}
}

func overClient(t *testing.T, addr string) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.New(client)
}

// begun is the work in progress when the fault begins.
type begun struct {
	long, freed *lock.Lease
	brief       *doomed
	run         *startedRun
}

// pass says which promise was broken on the way through the fault, if any.
func (o *ordeal) pass(t *testing.T) error {
	t.Helper()
	b := o.prepare(t)
	over := o.fault()
	began := time.Now()
	err := o.during(t, b)
	o.observed.fault = time.Since(began)
	over()
	if err != nil {
		return fmt.Errorf("during the fault: %w", err)
	}
	if err := o.after(t, b); err != nil {
		return fmt.Errorf("after the fault: %w", err)
	}
	for _, name := range o.server.Keys(t, "latch:once:*") {
		o.server.Do(t, "DEL", name) // receipts stay, as they should
	}
	return left(t, o.server, soon)
}

func (o *ordeal) prepare(t *testing.T) begun {
	t.Helper()
	b := begun{long: acquired(t, o.here, "user=long"), freed: acquired(t, o.here, "user=freed"), run: startRun(t, o.here)}
	b.brief = doom(t, acquired(t, o.here.With(lock.WithLease(shortLease)), "user=brief"))
	return b
}

// requirePass is [ordeal.pass] as a test.
func (o *ordeal) requirePass(t *testing.T) {
	t.Helper()
	require.NoError(t, o.pass(t))
	o.report(t)
}

func (o *ordeal) report(t *testing.T) {
	t.Helper()
	at := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	t.Logf("calls took at most %v (budget %v), a lease of %v was over after %v; after the fault its process was served within %v, all within %v",
		at(o.observed.calls), budget, shortLease, at(o.observed.notified), at(o.observed.again), at(o.observed.others))
}
