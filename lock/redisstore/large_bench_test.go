package redisstore_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
)

// BenchmarkLargeReceipt settles a receipt of 1 MiB, for a user with transactions and for one
// without. "blocked-ms/op" is the time for which the server serves no other caller.
func BenchmarkLargeReceipt(b *testing.B) {
	for name, rules := range map[string]string{
		"transactions": failure.MinimalACL + " +multi +exec",
		"none":         failure.MinimalACL,
	} {
		b.Run(name, func(b *testing.B) {
			srv := redistest.Start(b)
			args := []any{"ACL", "SETUSER", "u", "on", ">p"}
			for rule := range strings.FieldsSeq(rules) {
				args = append(args, rule)
			}
			srv.Do(b, args...)
			s := open(b, "redis://u:p@"+srv.Addr())
			srv.Do(b, "CONFIG", "RESETSTAT")
			for b.Loop() {
				take(b, s, "user=42", whole("a"))
				ok, err := s.Settle(b.Context(), "user=42", lock.Claim{Token: "a"}, large, time.Minute)
				require.NoError(b, err)
				require.True(b, ok)
				srv.Do(b, "FLUSHDB")
			}
			b.ReportMetric(timeIn(b, srv, "eval", "evalsha", "set")/float64(b.N), "blocked-ms/op")
		})
	}
}

// timeIn returns the milliseconds for which a server has worked on these commands.
func timeIn(tb testing.TB, srv *redistest.Server, commands ...string) (ms float64) {
	tb.Helper()
	info, ok := srv.Do(tb, "INFO", "commandstats").(string)
	require.True(tb, ok)
	stats := regexp.MustCompile(`cmdstat_(`+strings.Join(commands, "|")+`):calls=\d+,usec=(\d+)`).FindAllStringSubmatch(info, -1)
	require.NotEmpty(tb, stats)
	for _, m := range stats {
		usec, err := strconv.ParseFloat(m[2], 64)
		require.NoError(tb, err)
		ms += usec / 1000
	}
	return ms
}
