package report

import "strings"

// Units of the results. Times of one operation have "/op", as in the testing package.
const (
	Rate         = "ops/s"
	P50          = "p50-µs"
	P99          = "p99-µs"
	P999         = "p99.9-µs"
	Tail         = "p99/p50"
	Failed       = "failed"
	NotServed    = "not-served-%"
	ServerCPU    = "server-µs/op"   // of a redis-server: used_cpu_user + used_cpu_sys
	ClientCPU    = "client-µs/op"   // getrusage of the process that asks
	CommandCPU   = "commands-µs/op" // usec of commandstats
	Trips        = "trips/op"       // commands that came over the network
	Added        = "added-µs/op"    // to the bare handler
	Allocs       = "allocations/op" // the testing package does not print allocs/op of a benchmark without -benchmem
	KeyBytes     = "B/key"          // without the key itself
	WaitBytes    = "B/waiting-caller"
	WaitRoutines = "goroutines/waiting-caller"
	FreedP50     = "freed-p50-s"
	FreedMost    = "freed-most-s"
)

// Units of overload, networks that change, and outages.
const (
	Room       = "C"                // cycles a second by bare commands
	Goodput    = "goodput-of-C"     //
	Commands   = "commands/cycle"   // sent by the client; where nothing was done, of one cycle
	Unknown    = "unknown-%"        // of all calls
	Granted50  = "granted-p50-ms"   //
	Granted99  = "granted-p99-ms"   //
	Refused50  = "refused-p50-ms"   //
	Refused99  = "refused-p99-ms"   //
	Backlog    = "clean-ups"        // the most at the end of a second
	Goroutines = "goroutines"       // the most
	Heap       = "heap-MB"          // the most
	LateStart  = "arrivals-late-ms" // p99 of what the generator owes
	LateTimers = "timers-late-ms"   // p99 of the process
	OwnCPU     = "own-cores"        // the proxy's among it
	OthersCPU  = "others-cores"     // of everything else on the machine, the server among it
	After1     = "1st-second-after" // cycles when the load or the outage is over
	After2     = "2nd-second-after"
	After3     = "3rd-second-after"
	AfterLast  = "last-second-after"

	Healthy       = "first-answer-ms" // to a bare client, after the end of the outage
	FirstGrant    = "first-grant-ms"
	GrantDelay    = "grant-after-answer-ms"
	LastRefusal   = "last-wrong-refusal-ms" // of a call that began after the first answer; 0: none
	WrongRefusals = "wrong-refusals"
	ForCleanUp    = "refused-for-clean-up"
	BacklogGone   = "clean-ups-gone-ms"
	RateBefore    = "ops/s-before"
	NotInTime     = "times-not-seen" // of the first answer, the first grant and the end of the clean-ups
)

// FailedPerSecond is the unit of calls that failed in this way.
func FailedPerSecond(kind string) string { return strings.ReplaceAll(kind, " ", "-") + "/s" }

// Units of work in transactions.
const (
	Log        = "log-B/op"    // of the server: WAL or redo
	HeapOnly   = "heap-only-%" // of updates
	TableBytes = "table-B/receipt"
	IndexBytes = "index-B/receipt"   // of keys
	SweepBytes = "cleanup-B/receipt" // the index of the clean-up
	MostRows   = "most-rows"
	MostOver   = "most-expired-rows"
	MostDead   = "most-dead-rows" // over MariaDB, transactions whose old rows are not purged yet
	HalfSize   = "half-time-MB"
	EndSize    = "end-MB"
	Growth     = "end/half-time"
)
