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
	claimScript  = loadScript("claim")
	renewScript  = loadScript("renew")
	settleScript = loadScript("settle")
	amendScript  = loadScript("amend")
	roomScript   = loadScript("makeroom")
	removeScript = loadScript("remove")

	claimSetScript = loadScript("claimset")

	readScript   = loadScript("read")
	glanceScript = loadScript("glance")
	probeScript  = loadScript("probe")
)

// script is a script's source and its hash: strings, converted to arguments once.
type script struct{ source, sha any }

func loadScript(name string) script {
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisstore: " + err.Error()) // the binary was built without it
	}
	return script{source: string(source), sha: redis.NewScript(string(source)).Hash()}
}

func (sc script) String() string { return sc.source.(string) } //nolint:errcheck,forcetypeassert // loadScript stores a string

// eval runs sc on the entry of c, with args and the load of c, if it has one. If the server does
// not know the script yet, eval sends it again with its source. This does not execute it twice:
// the server has refused the first send.
//
// redis.Script.Run does the same, but the client repeats its commands when an answer is lost.
func (s *Store) eval(ctx context.Context, sc script, c *wire.Command, args ...any) (any, error) {
	answer, err := s.nodes.do(ctx, c.Script("evalsha", sc.sha, args...))
	if err == nil || failure.ClassOf(err) != "NOSCRIPT" {
		return answer, err
	}
	again := &wire.Command{EntryName: c.EntryName, Load: c.Load, Yields: c.Yields}
	return s.nodes.do(ctx, again.Script("eval", sc.source, args...))
}

// evalSet is eval on the entries of names, in one command.
func (s *Store) evalSet(ctx context.Context, sc script, names []string, args []any) (any, error) {
	command := func(verb string, which any) *wire.Command {
		c := wire.NewCommand(names[0])
		c.Yields = true
		all := []any{verb, which, len(names)}
		for _, name := range names {
			all = append(all, name)
		}
		return c.With(append(all, args...)...)
	}
	answer, err := s.nodes.do(ctx, command("evalsha", sc.sha))
	if err == nil || failure.ClassOf(err) != "NOSCRIPT" {
		return answer, err
	}
	return s.nodes.do(ctx, command("eval", sc.source))
}
