package suite

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/internal/redistest"
)

// server is a redis-server of a part, and a connection beside those of the
// contenders to ask it what they cost.
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

// usage is what the server has spent since it was started, in microseconds.
type usage struct {
	cpu      float64
	commands map[string]float64
}

func (s *server) usage(ctx context.Context) (usage, error) {
	info, err := s.client.InfoMap(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return usage{}, err
	}
	u := usage{commands: map[string]float64{}}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		if err != nil {
			return usage{}, fmt.Errorf("INFO cpu: %w", err)
		}
		u.cpu += seconds * 1e6
	}
	for name, fields := range info["Commandstats"] {
		for field := range strings.SplitSeq(fields, ",") {
			if text, ok := strings.CutPrefix(field, "usec="); ok {
				if u.commands[strings.TrimPrefix(name, "cmdstat_")], err = strconv.ParseFloat(text, 64); err != nil {
					return usage{}, fmt.Errorf("INFO commandstats: %w", err)
				}
			}
		}
	}
	return u, nil
}

// since is what was spent between two looks, on the server in all and by the
// commands named: those that clients sent, since those that scripts call are in
// the time of their scripts.
func (u usage) since(before usage, sent map[string]int) (cpu, commands float64) {
	for name := range sent {
		commands += u.commands[name] - before.commands[name]
	}
	return u.cpu - before.cpu, commands
}

// used_memory of the server.
func (s *server) memory(ctx context.Context) (float64, error) {
	info, err := s.client.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(info["Memory"]["used_memory"], 64)
}
