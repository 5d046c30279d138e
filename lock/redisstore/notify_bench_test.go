package redisstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

var waitings = map[string][]redisstore.Option{
	"polls":         nil,
	"notifications": {redisstore.WithNotifications()},
}

// The time from a release until another process, which has waited for a while,
// has the key.
func BenchmarkHandOver(b *testing.B) {
	for name, opts := range waitings {
		b.Run(name, func(b *testing.B) {
			url := redistest.Shared(b).URL()
			here, there := lock.New(open(b, url, opts...)), lock.New(open(b, url, opts...), lock.WithWait(time.Minute))
			var all []time.Duration
			for b.Loop() {
				held, err := here.Acquire(b.Context(), "user=42")
				require.NoError(b, err)
				released := make(chan time.Time, 1)
				time.AfterFunc(300*time.Millisecond, func() {
					began := time.Now()
					_ = held.Release(context.Background())
					released <- began
				})
				e, err := there.Acquire(b.Context(), "user=42")
				granted := time.Now()
				require.NoError(b, err)
				all = append(all, granted.Sub(<-released))
				require.NoError(b, e.Release(b.Context()))
			}
			slices.Sort(all)
			b.ReportMetric(0, "ns/op") // most of which is holding
			b.ReportMetric(all[len(all)/2].Seconds()*1000, "ms-median")
			b.ReportMetric(all[len(all)*95/100].Seconds()*1000, "ms-95%")
			for _, l := range []*lock.Locker{here, there} {
				require.NoError(b, l.Close(b.Context()))
			}
		})
	}
}

// The cost of publishing for a caller that releases.
func BenchmarkRelease(b *testing.B) {
	for name, opts := range waitings {
		b.Run(name, func(b *testing.B) {
			s := open(b, redistest.Shared(b).URL(), opts...)
			for b.Loop() {
				cycle(b.Context(), b, s, "user=42", claim("token-of-a-usual-length-0123456789"))
			}
		})
	}
}
