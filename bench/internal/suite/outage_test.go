package suite_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/bench/internal/report"
	"github.com/httplatch/httplatch/internal/overload"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

var (
	recovery = flag.Duration("recovery", 30*time.Second, "outage: how long the callers are watched when it is over, at most")
	outages  = flag.String("outages", "1s,5s,60s", "outage: how long the server is gone")
)

// Faults: silence swallows commands and replies for good, and a paused server answers when it
// goes on.
const (
	silence = "of silence"
	refusal = "of refused connections"
	pause   = "of a paused server"
)

type outage struct {
	Fault              string
	Callers            int
	Before, For, After time.Duration
}

// BenchmarkOutage takes the server from 10,000 callers for a while.
func BenchmarkOutage(b *testing.B) {
	for round := range *rounds {
		for text := range strings.SplitSeq(*outages, ",") {
			d, err := time.ParseDuration(text)
			require.NoError(b, err)
			for _, fault := range []string{silence, refusal, pause} {
				inTurns(b, round, fmt.Sprintf("%g s %s", d.Seconds(), fault), constructors(func(b *testing.B, constructor string) {
					out := &outage{Fault: fault, Callers: 10_000, Before: 3 * time.Second, For: d, After: *recovery}
					reportOutage(b, scenario{Constructor: constructor, Outage: out}.run(b).Recovery)
				}))
			}
		}
	}
}

// with is the outage of that server behind that proxy.
func (o outage) with(t *testing.T, proxy *overload.Proxy, server *redistest.Server) overload.Outage {
	t.Helper()
	out := overload.Outage{Callers: o.Callers, Before: o.Before, For: o.For, After: o.After, Addr: proxy.Addr()}
	switch o.Fault {
	case silence:
		out.Begin = func(context.Context) error { proxy.Silence(); return nil }
		out.End = func(context.Context) error { proxy.Speak(); return nil }
	case refusal:
		out.Begin = func(context.Context) error { proxy.Refuse(); return nil }
		out.End = func(context.Context) error { return proxy.Admit() }
	case pause:
		out.Begin = func(context.Context) error { server.Stop(); return nil }
		out.End = func(context.Context) error { server.Cont(); return nil }
	default:
		require.FailNow(t, "no such fault", o.Fault)
	}
	return out
}

// reportOutage reports times after the end of the outage. One that has not come is reported as
// the time of watching, which it exceeds.
func reportOutage(b *testing.B, r *overload.Recovery) {
	b.Helper()
	late := 0
	seen := func(d time.Duration) time.Duration {
		if d != overload.Never {
			return d
		}
		late++
		return *recovery
	}
	healthy, grant := seen(r.Answer), seen(r.Grant)
	b.ReportMetric(millis(healthy), report.Healthy)
	b.ReportMetric(millis(grant), report.FirstGrant)
	b.ReportMetric(max(0, millis(grant-healthy)), report.GrantDelay)
	b.ReportMetric(millis(r.LastRefusal), report.LastRefusal)
	b.ReportMetric(float64(r.Since.All()), report.WrongRefusals)
	b.ReportMetric(float64(r.During[overload.CleanUp]+r.Since[overload.CleanUp]), report.ForCleanUp)
	b.ReportMetric(millis(seen(r.Empty)), report.BacklogGone)
	b.ReportMetric(float64(late), report.NotInTime)
	b.ReportMetric(r.Before, report.RateBefore)
	b.ReportMetric(float64(r.Peak.Backlog), report.Backlog)
	b.ReportMetric(float64(r.Peak.Goroutines), report.Goroutines)
	b.ReportMetric(float64(r.Peak.Heap)/1e6, report.Heap)
	reportMachine(b, r.Timers, r.CPU)
	reportSeconds(b, r.Seconds)
}
