package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/shop"
	"github.com/httplatch/httplatch/bench/internal/web"
)

// tables are the report.
func tables() []table {
	return slices.Concat([]table{locks(), guards()}, transactions(), receipts(), []table{cleanUp, killed, overload, network, outage})
}

// callers names a case.
func callers(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", n)
}

// locks compares lock libraries on one Redis.
func locks() compared {
	c := compared{title: "locks on one Redis", figure: peer.Ours}
	for _, p := range peer.All()[1:] {
		c.columns = append(c.columns, p.Name)
	}
	add := func(r row) { c.rows = append(c.rows, r) }
	for _, n := range []int{1, 8, 64, 256, 1024} {
		r := row{title: "cycles/s, " + callers(n), of: name{"Cycles", callers(n), peer.Ours, Rate}, page: n != 64}
		switch n {
		case 1, 8:
			r.budgets = []budget{atLeast(0.95, peer.Bare)}
		case 256:
			r.budgets = []budget{atLeast(3, peer.Redislock), atLeast(1.5, peer.AutoPipelined), atLeast(3.8, peer.Redsync), atLeast(1.8, peer.Rueidislock)}
		}
		add(r)
	}
	for _, n := range []int{1, 256} {
		add(row{title: "server CPU, µs, " + callers(n), of: name{"Cycles", callers(n), peer.Ours, ServerCPU}, page: true})
		add(row{title: "client CPU, µs, " + callers(n), of: name{"Cycles", callers(n), peer.Ours, ClientCPU}})
	}
	for _, n := range []int{8, 256} {
		add(row{
			title: "allocations, " + callers(n), of: name{"Cycles", callers(n), peer.Ours, Allocs}, cells: figures,
			budgets: []budget{atMost(map[int]float64{8: 22, 256: 12}[n])},
		})
	}
	add(row{title: "p99 / p50, 256 callers", of: name{"Cycles", callers(256), peer.Ours, Tail}, cells: figures})
	add(row{title: "commands a cycle", of: name{"Trips", "a lock cycle", peer.Ours, Trips}, cells: figures, budgets: []budget{atMost(2)}})
	for _, n := range []int{1, 2, 4, 8, 16, 32} {
		add(row{title: "few callers: cycles/s, " + callers(n), of: name{"FewCallers", callers(n), peer.Ours, Rate}, budgets: []budget{atLeast(0.95, c.columns...)}})
	}
	for _, n := range []int{64, 256, 1024} {
		add(row{title: "cycles/s, round trips of 5 ms, " + callers(n) + ", defaults", of: name{"Latency", callers(n), peer.Defaults, Rate}, page: n == 1024})
	}
	add(row{title: "p50 of a PING through the proxy, µs", of: name{"Latency", "a PING", "the proxy", P50}, against: []string{}})
	for _, n := range []int{64, 256, 1024} {
		add(row{title: "cycles given up, " + callers(n), of: name{"Cycles", callers(n), peer.Ours, Failed}, cells: figures, omitIfZero: true})
		add(row{title: "cycles given up, round trips of 5 ms, " + callers(n), of: name{"Latency", callers(n), peer.Ours, Failed}, cells: figures, omitIfZero: true})
	}
	many := name{"Crowd", callers(10_000), peer.Defaults, Rate}
	add(row{title: "cycles/s of 10000 callers over 256, defaults", of: many, cells: ownRatios, base: callers(256), budgets: []budget{atLeast(0.8).ofOwn()}, page: true})
	add(row{title: "not served, %, 10000 callers, defaults", of: name{many.part, many.kase, many.who, NotServed}, cells: figures})
	add(row{
		title: "not served, %, 10000 callers at once, defaults", of: name{many.part, "10000 callers at once, no connections yet", many.who, NotServed},
		cells: figures, budgets: []budget{atMost(1)},
	})
	add(row{
		title: "bytes a waiting caller, defaults", of: name{many.part, "2500 callers that wait", many.who, WaitBytes},
		cells: figures, budgets: []budget{atMost(12 << 10)}, page: true,
	})
	for _, kase := range []string{"64 callers of the holder's process", "1 caller in each of 4 other processes"} {
		add(row{title: "duplicates refused/s, " + kase, of: name{"Contended", kase, peer.Ours, Rate}, page: true})
		add(row{title: "commands for a refusal, " + kase, of: name{"Contended", kase, peer.Ours, Trips}, cells: figures})
	}
	for _, kase := range []string{"64 callers, one reply in 1,000 late", "256 callers, one reply in 1,000 late"} {
		add(row{
			title: "p99 of the other cycles, µs, " + kase, of: name{"Stalls", kase, peer.Ours, P99}, cells: figures,
			budgets: []budget{atMost(30_000)}, page: strings.HasPrefix(kase, callers(256)),
		})
	}
	c.rows = append(c.rows, ownCommands()...)
	return c
}

// ownCommands compare a server's own compare-and-act with scripts, which are no column of the page.
func ownCommands() []row {
	scripts := func(title, kase, unit string, budgets ...budget) row {
		return row{title: "own commands of the server: " + title, of: name{"Scripts", kase, peer.Ours, unit}, budgets: budgets}
	}
	return []row{
		scripts("server CPU, µs", callers(256), ServerCPU, atMost(0.62, peer.Scripted)),
		scripts("server CPU of a renewal, µs", "renewals", ServerCPU, atMost(0.45, peer.Scripted)),
		scripts("cycles/s, 256 callers", callers(256), Rate, atLeast(1.2, peer.Scripted), atLeast(1.5, peer.AutoPipelined)),
	}
}

// guards compares guards of HTTP handlers, and the rates and the room of stores.
func guards() compared {
	c := compared{title: "guards", figure: "median", columns: []string{"bare handler", "by hand, go-redis", "by hand, rueidis", "fiber idempotency, or idemlease"}}
	add := func(r row) { c.rows = append(c.rows, r) }
	fiber := map[string]string{
		web.OnceMemory: web.FiberOnceMemory, web.OnceMemory + replay: web.FiberOnceMemory + replay,
		web.OnceRedis: web.FiberOnceRedis, web.OnceRedis + replay: web.FiberOnceRedis + replay,
	}
	for _, loop := range []struct{ title, kase, unit string }{
		{"POST /orders per second", "closed loop, 64 connections", Rate},
		{"p99 of POST /orders, 4000/s, µs", "open loop, 4000 requests/s", P99},
	} {
		for _, who := range []string{
			web.LockMemory, web.LockRedis, web.ByHandGoRedis, web.ByHandRueidis, web.OnceMemory, web.OnceMemory + replay, web.OnceRedis, web.OnceRedis + replay,
		} {
			r := row{title: loop.title + ", " + who, of: name{"HTTP", loop.kase, who, loop.unit}, against: []string{web.Bare, "", "", fiber[who]}, page: loop.unit == Rate}
			if who == web.LockRedis {
				r.against[1], r.against[2], r.page = web.ByHandGoRedis, web.ByHandRueidis, true
				if loop.unit == P99 {
					r.budgets = []budget{atMost(1.3, web.ByHandGoRedis)}
				}
			}
			add(r)
		}
		for _, who := range []string{web.FiberOnceMemory, web.FiberOnceMemory + replay, web.FiberOnceRedis, web.FiberOnceRedis + replay} {
			add(row{title: loop.title + ", " + who, of: name{"HTTP", loop.kase, who, loop.unit}, against: []string{web.FiberBare}})
		}
	}
	for _, trips := range []struct {
		kase, who string
		most      float64
	}{
		{"a first request", web.LockRedis, 2},
		{"a first request", web.OnceRedis, 2},
		{"a replay", web.OnceRedis, 1},
		{"a duplicate in the holder's process", web.LockRedis, 0},
		{"a duplicate in the holder's process", web.OnceRedis, 0},
	} {
		add(row{
			title: "round trips of " + trips.kase + ", " + trips.who, of: name{"Trips", trips.kase, trips.who, Trips}, cells: figures,
			against: []string{"", "", "", fiber[trips.who]}, budgets: []budget{atMost(trips.most)}, page: trips.most > 0 || trips.who == web.LockRedis,
		})
	}
	over := "over the bare handler"
	add(row{title: "µs in memory, Lock", of: name{"InProcess", over, "Lock", Added}, against: []string{}, budgets: []budget{atMost(1.2)}, page: true})
	add(row{title: "allocations in memory, Lock", of: name{"InProcess", over, "Lock", Allocs}, against: []string{}, budgets: []budget{atMost(4)}})
	for _, guard := range []struct {
		kind string
		most float64
	}{{"first", 0.5}, {"replay", 0.6}} {
		who, other := "Idempotent, "+guard.kind, "repenguin22/idemlease, "+guard.kind
		add(row{title: "µs in memory, " + who, of: name{"InProcess", over, who, Added}, against: []string{"", "", "", other}, budgets: []budget{atMost(guard.most, other)}, page: true})
		add(row{title: "allocations in memory, " + who, of: name{"InProcess", over, who, Allocs}, cells: figures, against: []string{"", "", "", other}})
	}
	c.rows = append(c.rows, growth()...)
	return c
}

const replay = ", replay"

// growth compares cycles with the cycles beside the fewest keys.
func growth() (all []row) {
	keys := func(n int) string { return fmt.Sprintf("%d live keys", n) }
	for _, store := range []string{"memory store", "Redis store"} {
		for _, n := range []int{100_000, 1_000_000} {
			r := row{
				title: "cycles/s beside " + keys(n) + " over 1000, " + store, of: name{"Growth", keys(n), store, Rate},
				cells: ownRatios, base: keys(1000), against: []string{}, page: n == 1_000_000 && store == "memory store",
			}
			b := row{title: "bytes a key beside it, " + keys(n) + ", " + store, of: name{"Growth", keys(n), store, KeyBytes}, against: []string{}, page: r.page}
			if store == "memory store" {
				r.budgets = []budget{atLeast(0.85).ofOwn()}
				if n == 1_000_000 {
					b.budgets = []budget{atMost(250)}
				}
			}
			all = append(all, r, b)
		}
	}
	return all
}

// transactions compare work in transactions of each database.
func transactions() []table {
	return []table{postgresTransactions(), bareTransactions(shop.MariaDB, ClientCPU, ServerCPU, Log), bareTransactions(shop.SQLite, ClientCPU)}
}

func postgresTransactions() compared {
	c := compared{title: shop.PostgreSQL, figure: "median", columns: []string{shop.Bare, shop.Idemlease}}
	of := func(kase, who, unit string) row {
		return row{title: kase + ", " + unit + ": " + who, of: name{"Transactions", shop.PostgreSQL + ", " + kase, who, unit}}
	}
	add := func(r row, budgets ...budget) {
		r.budgets = budgets
		c.rows = append(c.rows, r)
	}
	for _, n := range []int{1, 8, 32} {
		first := atLeast(0.55, shop.Bare)
		if n > 8 {
			first = atLeast(0.48, shop.Bare)
		}
		for _, who := range []string{shop.Ours, shop.OursSQL, shop.Idemlease} {
			var order, again []budget
			if who == shop.Ours {
				order, again = []budget{first}, []budget{atLeast(0.55, shop.Bare)}
			}
			add(of("order, "+callers(n), who, Rate), order...)
			add(of("order, a flush takes 1 ms more, "+callers(n), who, Rate))
			add(of("replay, "+callers(n), who, Rate), again...)
			for _, unit := range []string{ServerCPU, ClientCPU, Log} {
				add(of("order, "+callers(n), who, unit))
			}
		}
	}
	add(of("all updates", shop.Ours, HeapOnly), atLeast(95))
	serializable := of("INSERTs under serializable, 8 callers", shop.Ours, NotServed)
	serializable.cells = figures
	add(serializable, atMost(0.5))
	grown := of("order, 8 callers, 60,000 rows after 60", "before ANALYZE", Rate)
	grown.against = []string{"after ANALYZE"}
	add(grown, atLeast(0.9, "after ANALYZE"))
	return c
}

// bareTransactions compares ours with the bare ones.
func bareTransactions(database string, costs ...string) compared {
	c := compared{title: database, figure: "median", columns: []string{shop.Bare}}
	add := func(kase, unit string) {
		c.rows = append(c.rows, row{title: kase + ", " + unit, of: name{"Transactions", database + ", " + kase, shop.Ours, unit}})
	}
	for _, n := range []int{1, 8, 32} {
		add("order, "+callers(n), Rate)
		add("replay, "+callers(n), Rate)
		for _, unit := range costs {
			add("order, "+callers(n), unit)
		}
	}
	return c
}

// receipts compare the costs beside many receipts with the costs beside a thousand, in each database.
func receipts() []table {
	return []table{
		receiptsIn(shop.PostgreSQL, TableBytes, IndexBytes, SweepBytes), receiptsIn(shop.MariaDB, TableBytes, SweepBytes), receiptsIn(shop.SQLite, TableBytes, SweepBytes),
	}
}

func receiptsIn(database string, room ...string) compared {
	c := compared{title: "receipts in " + database, figure: "median"}
	kase := func(n int) string { return fmt.Sprintf("%s, %d receipts, 1 caller", database, n) }
	for _, n := range []int{1000, 1_000_000} {
		for _, who := range []string{"claim", "order", "replay"} {
			c.rows = append(c.rows, row{title: fmt.Sprintf("p50, µs, %s beside %d", who, n), of: name{"Receipts", kase(n), who, P50}})
			if n > 1000 {
				c.rows = append(c.rows, row{title: fmt.Sprintf("the same over that beside 1000, %s", who), of: name{"Receipts", kase(n), who, P50}, cells: ownRatios, base: kase(1000)})
			}
		}
		for _, unit := range room {
			c.rows = append(c.rows, row{title: fmt.Sprintf("%s, %d", unit, n), of: name{"Receipts", kase(n), "their room", unit}})
		}
	}
	return c
}

var (
	// A table that is written to and cleaned up at once is no larger at the end than when its first receipts had gone.
	cleanUp = wide{
		part:    "CleanUp",
		units:   []string{P50, P99, MostRows, MostOver, MostDead, HalfSize, EndSize, Growth},
		budgets: map[string]budget{Growth: atMost(1.25)},
	}
	killed = wide{
		part:    "Killed",
		units:   []string{FreedP50, FreedMost},
		budgets: map[string]budget{FreedMost: atMost(5.5)},
		over:    []string{"an order of up to 1.5 s"},
	}

	// The columns of docs/reliability.md.
	overload = wide{
		part: "Overload",
		units: []string{
			Goodput, Commands, Unknown, Refused50, Granted99, Backlog, Goroutines, Heap, After1, After2, After3, AfterLast, LateStart, LateTimers, OthersCPU,
		},
		budgets: map[string]budget{Goodput: atLeast(0.9), Commands: atMost(2.3), Unknown: atMost(1), Refused50: atMost(5)},
		over:    []string{"2 C", "5 C", "600 callers", "3000 callers"},
	}
	network = wide{part: "Network", units: []string{NotServed, Unknown, Granted50, Granted99, Commands}}
	outage  = wide{
		part: "Outage",
		units: []string{
			Healthy, FirstGrant, GrantDelay, LastRefusal, WrongRefusals, ForCleanUp, BacklogGone, RateBefore, After1, After2, After3, NotInTime, OthersCPU,
		},
		budgets: map[string]budget{GrantDelay: atMost(100), ForCleanUp: atMost(0)},
	}
)
