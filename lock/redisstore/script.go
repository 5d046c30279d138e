package redisstore

import (
	"context"
	"embed"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// The scripts have no "#!lua" line: with one, a script declares up front that it
// writes, and the server refuses all of it when it is out of memory.
//
//go:embed lua/*.lua
var sources embed.FS

var (
	claimScript    = loadScript("claim", yields)
	claimSetScript = loadScript("claimset", yields)
	renewScript    = loadScript("renew", 0)
	settleScript   = loadScript("settle", publishes)
	roomScript     = loadScript("makeroom", publishes)
	removeScript   = loadScript("remove", publishes)
	amendScript    = loadScript("amend", 0)
	readScript     = loadScript("read", yields)
	glanceScript   = loadScript("glance", yields)
	probeScript    = loadScript("probe", publishes)
)

// script is a script's source and its hash.
type script struct {
	source, sha string
	traits
}

// traits are the effects of a script on other callers.
type traits uint8

const (
	yields    traits = 1 << iota // scripts that end a lease overtake it
	publishes                    // "publish" as its last argument makes it notify waiters
)

func loadScript(name string, of traits) script {
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisstore: " + err.Error()) // the binary was built without it
	}
	return script{source: string(source), sha: redis.NewScript(string(source)).Hash(), traits: of}
}

// eval runs sc on n entries. The args begin with the names of those after the first. If the server
// does not know the script yet, eval sends it again with its source. This does not execute it twice:
// the server has refused the first send.
//
// redis.Script.Run does the same, but the client repeats its commands when an answer is lost.
func (s *Store) eval(ctx context.Context, sc *script, n int64, name string, args ...any) (any, error) {
	head, tail := []any{"evalsha", sc.sha, n, name}, []any{"publish"}
	if sc.traits&publishes == 0 || s.notices == nil {
		tail = nil
	}
	for {
		c := wire.NewCommandOf(name, head, args, tail)
		c.Yields = sc.traits&yields != 0
		answer, err := s.nodes.do(ctx, c)
		c.Free()
		if err == nil || failure.ClassOf(err) != "NOSCRIPT" || head[0] == "eval" {
			return answer, err
		}
		head[0], head[1] = "eval", sc.source
	}
}
