package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
)

// BenchmarkEnds locks and releases, and renews, for 64 callers: with the claim, which a
// newer server (REDIS_SERVER) compares by itself, and with its token alone, which is a
// script. "server-us/op" is the time that the server's process has used.
func BenchmarkEnds(b *testing.B) {
	for name, end := range map[string]func(lock.Claim) lock.Claim{
		"claim": func(c lock.Claim) lock.Claim { return c },
		"token": func(c lock.Claim) lock.Claim { return lock.Claim{Token: c.Token, Lease: c.Lease, Linger: c.Linger} },
	} {
		srv := redistest.Start(b)
		s := open(b, srv.URL())
		parallel := func(b *testing.B, call func(key string, c lock.Claim) bool) {
			b.Helper()
			var callers sync.WaitGroup
			before := cpuOf(b, srv)
			for i := range 64 {
				callers.Go(func() {
					key, c := strconv.Itoa(i), known("a")
					for range b.N/64 + 1 {
						if !call(key, c) {
							b.Error("not granted, or not ended")
							return
						}
					}
				})
			}
			callers.Wait()
			b.ReportMetric((cpuOf(b, srv)-before).Seconds()*1e6/float64(b.N), "server-us/op")
		}
		b.Run("cycle/"+name, func(b *testing.B) {
			parallel(b, func(key string, c lock.Claim) bool {
				e, err := s.Claim(b.Context(), key, c)
				ok, failed := s.Release(b.Context(), key, end(c))
				return err == nil && failed == nil && e.Token == c.Token && ok
			})
		})
		b.Run("renewal/"+name, func(b *testing.B) {
			for i := range 64 {
				take(b, s, strconv.Itoa(i), known("a"))
			}
			parallel(b, func(key string, c lock.Claim) bool {
				ok, err := s.Renew(b.Context(), key, end(c))
				return err == nil && ok
			})
			srv.Do(b, "FLUSHALL")
		})
	}
}

var cpuUsed = regexp.MustCompile(`(?m)^used_cpu_(?:user|sys):([0-9.]+)`)

// cpuOf is the processor time that a server has used.
func cpuOf(b *testing.B, srv *redistest.Server) (used time.Duration) {
	b.Helper()
	for _, m := range cpuUsed.FindAllStringSubmatch(fmt.Sprint(srv.Do(b, "INFO", "cpu")), -1) {
		seconds, err := strconv.ParseFloat(m[1], 64)
		require.NoError(b, err)
		used += time.Duration(seconds * float64(time.Second))
	}
	return used
}
