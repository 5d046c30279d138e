package sealed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sealed"
)

// still is a store that has one entry and takes every receipt, so that what is
// measured over it is the sealing.
type still struct {
	lock.Store
	entry lock.Entry
}

func (s *still) Claim(context.Context, string, lock.Claim) (lock.Entry, error) { return s.entry, nil }

func (s *still) Settle(_ context.Context, _, token string, receipt []byte, _ time.Duration) (bool, error) {
	s.entry = lock.Entry{State: lock.Settled, Token: token, Receipt: receipt}
	return true, nil
}

func BenchmarkSealed(b *testing.B) {
	key, c := storedKey("order 7"), lock.Claim{Token: "0b5d4b0e-3f0e-4e0e-8a52-7d3c0e6f1a2b.1.AAAAAAAAAAA", Lease: time.Minute}
	for _, size := range []int{0, 1 << 10, 64 << 10, 1 << 20} {
		receipt := make([]byte, size)
		b.Run(fmt.Sprintf("settle/bytes=%d", size), func(b *testing.B) {
			s := sealed.New(&still{}, gcm(b, 1))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Settle(b.Context(), key, c.Token, receipt, time.Hour); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("replay/bytes=%d", size), func(b *testing.B) {
			inner := &still{}
			s := sealed.New(inner, gcm(b, 1))
			if _, err := s.Settle(b.Context(), key, c.Token, receipt, time.Hour); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if e, err := s.Claim(b.Context(), key, c); err != nil || len(e.Receipt) != size {
					b.Fatal(len(e.Receipt), err)
				}
			}
		})
	}
	// A grant has nothing to open.
	b.Run("grant", func(b *testing.B) {
		s := sealed.New(&still{entry: lock.Entry{State: lock.Held, Token: c.Token}}, gcm(b, 1))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.Claim(b.Context(), key, c); err != nil {
				b.Fatal(err)
			}
		}
	})
}
