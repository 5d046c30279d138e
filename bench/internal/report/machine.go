package report

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// Machine is where something was measured, and with what.
type Machine struct {
	Cores    int      `json:"cores"`
	CPU      string   `json:"cpu"`
	Kernel   string   `json:"kernel"`
	Go       string   `json:"go"`
	Redis    string   `json:"redis"`
	Versions []string `json:"versions"` // of what is compared
}

// compared are the modules whose versions are listed.
var compared = []string{
	"github.com/redis/go-redis/v9",
	"github.com/bsm/redislock",
	"github.com/go-redsync/redsync/v4",
	"github.com/redis/rueidis",
	"github.com/zeromicro/go-zero",
	"github.com/gofiber/fiber/v3",
	"github.com/repenguin22/idemlease",
	"github.com/jackc/pgx/v5",
}

// ThisMachine asks. What it cannot find out is "unknown".
func ThisMachine(ctx context.Context) Machine {
	m := Machine{
		Cores: runtime.NumCPU(), CPU: cpuModel(), Go: runtime.Version(),
		Kernel: output(ctx, "uname", "-srm"),
		Redis:  shortened(output(ctx, redisServer(), "--version")),
	}
	info, _ := debug.ReadBuildInfo()
	for _, path := range compared {
		for _, dep := range info.Deps {
			if dep.Path == path {
				m.Versions = append(m.Versions, strings.TrimPrefix(path, "github.com/")+" "+dep.Version)
			}
		}
	}
	return m
}

// shortened leaves out of "Redis server v=7.0.15 sha=00000000:0 malloc=..." how
// it was built.
func shortened(version string) string {
	short, _, _ := strings.Cut(version, " sha=")
	return short
}

// redisServer is the one that package redistest starts.
func redisServer() string {
	if path := os.Getenv("REDIS_SERVER"); path != "" {
		return path
	}
	return "redis-server"
}

func output(ctx context.Context, name string, args ...string) string {
	text, err := exec.CommandContext(ctx, name, args...).Output() //nolint:gosec // the developer's choice
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// cpuModel is what Linux says it is.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// String is one line.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores (%s), %s, %s, %s; %s", m.Cores, m.CPU, m.Kernel, m.Go, m.Redis, strings.Join(m.Versions, ", "))
}
