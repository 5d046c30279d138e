package suite

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// server is a redis-server of a part, and a connection in addition to those of
// the contenders to ask it what they cost.
type server struct {
	addr   string
	client *redis.Client
}

func (b *bench) server() *server {
	srv := redistest.Start(b.host)
	return &server{srv.Addr(), srv.Client(b.host)}
}

// flush empties the server: every contender begins with nothing.
func (s *server) flush(ctx context.Context) error {
	return s.client.FlushAll(ctx).Err()
}

// pause holds back every answer of the server for d. Connections stay, and commands
// wait.
func (s *server) pause(ctx context.Context, d time.Duration) error {
	return s.client.Do(ctx, "CLIENT", "PAUSE", d.Milliseconds(), "ALL").Err()
}

// used_memory of the server.
func (s *server) memory(ctx context.Context) (float64, error) {
	info, err := s.client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(info["Memory"]["used_memory"], 64)
}
