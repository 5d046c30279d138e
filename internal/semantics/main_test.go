package semantics_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(quiet)  // hints at wrong mounting, of guards that are mounted wrongly here
	redis.SetLogger(mute{}) // connections are cut off here
	// chi refuses methods that it does not know. No standard names BOOKING.
	for _, method := range []string{"QUERY", "PROPFIND", "REPORT", "SEARCH", "BOOKING"} {
		chi.RegisterMethod(method)
	}
	goleak.VerifyTestMain(redistest.Main(m))
}

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}
