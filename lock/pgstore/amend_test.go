package pgstore_test

import (
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/sqlshop"
)

func TestJobs(t *testing.T) {
	t.Parallel()
	for over, open := range shops {
		t.Run(over, func(t *testing.T) {
			t.Parallel()
			sqlshop.TestJobs(t, func(t *testing.T) *sqlshop.Shop { t.Helper(); return open(t).Shop })
		})
	}
}
