package history_test

import (
	"flag"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

var (
	seedFlag      = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of what clients do and of the faults")
	historiesFlag = flag.Int("histories", 56, "how many histories over Redis to check; 210 are all that reliability.md reports")
	postgresFlag  = flag.Int("histories.pg", 14, "how many histories over PostgreSQL to check; 210 are all that reliability.md reports")
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Lockers report every fault
	logging.Disable()
	goleak.VerifyTestMain(pgtest.Main(redistest.Main(m)), goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn.(*PgConn).asyncClose.func1"))
}
