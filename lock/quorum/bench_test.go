package quorum_test

import (
	"strconv"
	"testing"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/lock/quorum"
)

// The cost of the quorum itself: its nodes answer at once.
func BenchmarkQuorum(b *testing.B) {
	q := quorum.New([]lock.Store{memstore.New(), memstore.New(), memstore.New()})
	l := lock.New(q, lock.WithLogger(quiet))
	b.Run("acquire and release", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e, err := l.Acquire(b.Context(), key)
			if err != nil {
				b.Fatal(err)
			}
			if err := e.Release(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("claim and release", func(b *testing.B) {
		c := lock.Claim{Lease: longLease}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c.Token = strconv.Itoa(i) // as a Locker does
			if _, err := q.Claim(b.Context(), "bare", c); err != nil {
				b.Fatal(err)
			}
			if _, err := q.Release(b.Context(), "bare", c); err != nil {
				b.Fatal(err)
			}
		}
	})
	if err := l.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
