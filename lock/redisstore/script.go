package redisstore

import (
	"context"
	"embed"

	"github.com/redis/go-redis/v9"
)

// The scripts have no "#!lua" line: a script with one declares up front that it
// writes, and is then refused as a whole when the server is out of memory.
//
//go:embed lua/*.lua
var sources embed.FS

var (
	claimScript  = loadScript("claim")
	renewScript  = loadScript("renew")
	settleScript = loadScript("settle")
	removeScript = loadScript("remove")
	readScript   = loadScript("read")
	glanceScript = loadScript("glance")
	probeScript  = loadScript("probe")
)

type script struct{ source, sha []byte }

func loadScript(name string) script {
	source, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisstore: " + err.Error()) // the binary was built without it
	}
	return script{source: source, sha: []byte(redis.NewScript(string(source)).Hash())}
}

// eval runs sc on the entry called name. The second send, after a server that
// does not know the script yet, is no repetition: the first was refused.
//
// redis.Script.Run does the same, but its commands are repeated by the client
// when an answer is lost.
func eval(ctx context.Context, to sender, sc script, name string, args ...any) (any, error) {
	answer, err := send(ctx, to, scriptCommand(ctx, "evalsha", sc.sha, name, args))
	if err != nil && classOf(err) == "NOSCRIPT" {
		return send(ctx, to, scriptCommand(ctx, "eval", sc.source, name, args))
	}
	return answer, err
}

func scriptCommand(ctx context.Context, verb string, text []byte, name string, args []any) *command {
	all := append(make([]any, 0, maxArgs), verb, nil, 1, name)
	return newCommand(ctx, name, 1, text, append(all, args...)...)
}
