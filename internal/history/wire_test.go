package history_test

import (
	"github.com/httplatch/httplatch/internal/testkit/sqlproxy"
)

// wireFaults are the faults of statements that write, and how many of a thousand have each.
type wireFaults []struct {
	name     string
	permille int
	fault    sqlproxy.Fault
}

func (fs wireFaults) names() (names []string) {
	for _, f := range fs {
		names = append(names, f.name)
	}
	return append(names, allLost)
}

// wireWeather is the faults of one history over a server of SQL.
type wireWeather struct {
	dice
	toll

	proxy  *sqlproxy.Proxy
	faults wireFaults
}

func (w *wireWeather) addr() string { return w.proxy.Addr() }

func (w *wireWeather) begin() { w.proxy.Decide(w.decide) }

func (w *wireWeather) decide(x *sqlproxy.Exchange) sqlproxy.Fault {
	if x.Cancel || len(x.SQL) == 0 || x.Begins("SELECT") || x.SQL[0] != "COMMIT" && !x.Contains("latch_entries") {
		return sqlproxy.Fault{}
	}
	if w.darkens(&w.dice) {
		w.strike(allLost)
		return sqlproxy.Fault{Action: sqlproxy.LoseReply}
	}
	for _, f := range w.faults {
		if w.draw(f.permille) {
			w.strike(f.name)
			return f.fault
		}
	}
	return sqlproxy.Fault{}
}

// end lets all pass from now on.
func (w *wireWeather) end(c *counts) {
	w.proxy.Decide(nil)
	w.count(c)
}
