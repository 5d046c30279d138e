package mysqlstore_test

import (
	"testing"
	"time"

	latchtest "github.com/httplatch/httplatch/httptest"
	"github.com/httplatch/httplatch/lock"
)

const shortLease = 50 * time.Millisecond

// The store is the same for all settings of the driver, and of the sessions of the work.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, params := range map[string][]string{
		"default":   nil,
		"parseTime": {"parseTime=true", "loc=America%2FNew_York"},
		"other": {
			"parseTime=true", "clientFoundRows=true", "interpolateParams=true", "multiStatements=true", "columnsWithAlias=true", "charset=latin1",
			"autocommit=0", "time_zone=%27-09:30%27", "sql_mode=%27ANSI,NO_BACKSLASH_ESCAPES%27", "completion_type=1", "sql_safe_updates=1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t, database(t, params...))
			latchtest.TestStore(t, shortLease, func(*testing.T) lock.Store { return store })
		})
	}
}
