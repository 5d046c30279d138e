package sealed_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sealed"
)

func BenchmarkSealed(b *testing.B) {
	key, c := storedKey("order 7"), lock.Claim{Token: "0b5d4b0e-3f0e-4e0e-8a52-7d3c0e6f1a2b.1.AAAAAAAAAAA", Lease: time.Minute}
	for _, size := range []int{0, 1 << 10, 64 << 10, 1 << 20} {
		receipt := make([]byte, size)
		b.Run(fmt.Sprintf("settle/bytes=%d", size), func(b *testing.B) {
			s := sealed.New(&still{}, gcm(b, 1))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Settle(b.Context(), key, c, receipt, time.Hour); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("replay/bytes=%d", size), func(b *testing.B) {
			inner := &still{}
			s := sealed.New(inner, gcm(b, 1))
			if _, err := s.Settle(b.Context(), key, c, receipt, time.Hour); err != nil {
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
