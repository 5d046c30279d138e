package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/internal/overload"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// Outage is the part in which 10,000 callers lose their server for a while. Its
// cases begin with the seconds.
const Outage = "outage"

// How the server goes: silence swallows what is on its way for good, a paused
// server answers it when it goes on.
const (
	silence = "of silence"
	refusal = "of refused connections"
	pause   = "of a paused server"
)

// Metrics of Outage. Times are milliseconds after its end, and infinite (absent in
// the figures) if the thing has not happened in Settings.Recovery.
const (
	Healthy        = "first answer, ms"             // to a bare client
	FirstGrant     = "first grant, ms"              // after the end
	GrantDelay     = "grant after answer, ms"       //
	LastRefusal    = "last wrong refusal, ms"       // of a call that began after the first answer; 0: none
	WrongRefusals  = "wrong refusals"               // how many
	ForCleanUp     = "refused for clean-up"         // during and after
	BacklogGone    = "clean-ups gone, ms"           //
	RateBefore     = "per second before"            // cycles
	RateAfterFirst = "per second, 1st second after" //
	RateAfter2     = "per second, 2nd second after" //
	RateAfter3     = "per second, 3rd second after" //
	NotInTime      = "times not seen to their end"  // of the three above
)

const outageCallers = 10_000

type outageCase struct {
	name, constructor string
	outage            outage
}

func (b *bench) outageCases() []outageCase {
	var all []outageCase
	for _, d := range b.Outages {
		for _, fault := range []string{silence, refusal, pause} {
			for _, constructor := range []string{withOpen, withNew} {
				all = append(all, outageCase{
					fmt.Sprintf("%g s %s", d.Seconds(), fault), constructor,
					outage{Fault: fault, Callers: outageCallers, Before: 3 * time.Second, For: d, After: b.Recovery},
				})
			}
		}
	}
	return all
}

func measureOutage(ctx context.Context, b *bench) error {
	cases := b.outageCases()
	return b.rounds(ctx, len(cases), func(i int) error {
		c := cases[i]
		if !b.chosen(c.name + ", " + c.constructor) {
			return nil
		}
		o, err := b.play(ctx, scenario{Constructor: c.constructor, Outage: &c.outage})
		if err != nil {
			return fmt.Errorf("%s, %s: %w", c.name, c.constructor, err)
		}
		b.addOutage(c, *o.Recovery)
		return nil
	})
}

// with is the outage of that server behind that proxy.
func (o outage) with(proxy *overload.Proxy, server *redistest.Server) overload.Outage {
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
	}
	return out
}

func (b *bench) addOutage(c outageCase, r overload.Recovery) {
	add := func(metric string, value float64) { b.add(c.name, c.constructor, metric, value) }
	late := 0
	addTime := func(metric string, d time.Duration) {
		if d == overload.Never {
			late++
			d = b.Recovery // at least
		}
		add(metric, millis(d))
	}
	addTime(Healthy, r.Answer)
	addTime(FirstGrant, r.Grant)
	if r.Grant != overload.Never {
		add(GrantDelay, max(0, millis(r.Grant-r.Answer)))
	} else {
		add(GrantDelay, millis(b.Recovery))
	}
	add(LastRefusal, millis(r.LastRefusal))
	add(WrongRefusals, float64(r.Since.All()))
	add(ForCleanUp, float64(r.During[overload.CleanUp]+r.Since[overload.CleanUp]))
	addTime(BacklogGone, r.Empty)
	add(NotInTime, float64(late))
	add(RateBefore, r.Before)
	for i, metric := range []string{RateAfterFirst, RateAfter2, RateAfter3} {
		if i < len(r.Seconds) {
			add(metric, float64(r.Seconds[i].Done))
		}
	}
	add(LateTimers, millis(r.Timers.P99))
	add(OwnCPU, r.CPU.Self)
	add(OthersCPU, r.CPU.Others)
	add(Backlog, float64(r.Peak.Backlog))
	add(Goroutines, float64(r.Peak.Goroutines))
	add(Heap, float64(r.Peak.Heap)/1e6)
	b.log("%-28s %-5s answer %s, grant %s, last refusal %s, no clean-ups %s; cycles %.0f, then %d; during: %s; after: %s", c.name, c.constructor,
		after(r.Answer), after(r.Grant), after(r.LastRefusal), after(r.Empty), r.Before, overload.Done(r.Seconds), failuresText(r.During), failuresText(r.Since))
}

func after(d time.Duration) string {
	if d == overload.Never {
		return "never"
	}
	return d.Round(time.Millisecond).String()
}
