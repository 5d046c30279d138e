package redisstore

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
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

// Newer servers compare a value and act on it in one command, which costs
// them half as much as a script:
//
//	DELIFEQ name value                 Valkey 9.0
//	DELEX name IFEQ value              Redis 8.4
//	SET name value IFEQ old PX ms      Valkey 8.1, Redis 8.4
//
// They compare the whole value, which is built from the claim. A value that differs can still
// be an entry of the token: its linger is longer, it keeps the fence of an earlier holder, it
// is a receipt, or the caller passed only the token. So after "not equal" the script
// decides. Unlike the script, these commands cannot keep fences, notify waiters, compare
// leases, or run without memory.

// A server can delete an equal value, or replace it, or both.
const (
	deletes = iota
	replaces
	abilities
)

// spellings is the number of commands for the same, by different servers.
var spellings = [abilities]int32{deletes: 2, replaces: 1}

// ability notes from a server's answers whether it has a command, and in which spelling. A
// failover or an upgrade can change this. If a server lacks the command, the command of a caller
// tries it again after a while. A server that no longer has the command reports an error, and
// executes nothing.
type ability struct {
	spelling atomic.Int32 // that the server has executed, counted from 1; 0: none is known
	next     atomic.Int64 // the time of the next try, in ms of Unix time
}

const askAgain = 10 * time.Minute

// choose returns the first spelling to try, 0 if there is none to try. Only one of several callers tries an
// unproven command, so that an unknown command costs only one call.
func (a *ability) choose() int32 {
	if n := a.spelling.Load(); n > 0 {
		return n
	}
	if next, now := a.next.Load(), time.Now().UnixMilli(); now >= next && a.next.CompareAndSwap(next, now+askAgain.Milliseconds()) {
		return 1
	}
	return 0
}

// compareAndAct lets the server act on the entry without a script, if the entry is exactly the
// value that c has stored. command makes the n-th spelling. done is true if the server has acted. If done
// is false and err is nil, the script has to decide.
func (s *Store) compareAndAct(ctx context.Context, name, kept string, c *lock.Claim, action int, command func(n int32, value []byte) *wire.Command) (done bool, err error) {
	if c.Attempt < 1 || c.Fenced || len(c.Token) == 0 || len(c.Token) > math.MaxUint8 {
		return false, nil // a part of the value is unknown
	}
	server, err := s.nodes.route(ctx, name)
	if err != nil {
		return false, err
	}
	can := &server.can[action]
	for n := can.choose(); n > 0 && n <= spellings[action]; n++ {
		cmd := command(n, entry.Append(nil, c, kept))
		cmd.Alone = can.spelling.Load() != n
		answer, err := s.nodes.do(ctx, cmd)
		if err != nil {
			if next, err := s.noteMiss(can, cmd, err); !next {
				return false, err
			}
			continue
		}
		cmd.Free()
		can.spelling.Store(n)
		switch answer {
		case "OK":
			return true, nil
		case nil:
			return false, nil
		}
		return boolReply(answer, nil)
	}
	return false, nil
}

// noteMiss notes the error with which a server has not executed a command. It returns err if the call
// ends with err. Otherwise it reports whether to try the next spelling before the script.
func (s *Store) noteMiss(can *ability, cmd *wire.Command, err error) (next bool, _ error) {
	switch class := failure.ClassOf(err); {
	case failure.IsSyntaxError(err), class == "command": // not executed, even if a wrapper has sent it twice
		can.spelling.Store(0)
		return true, nil
	case !errors.Is(err, lock.ErrNotApplied):
		if failure.IsReply(err) {
			can.spelling.Store(0) // a proxy with its own error for an unknown command
		}
		return false, err
	case class == "NOPERM":
		can.next.Store(math.MaxInt64)
		can.spelling.Store(0)
		s.forbidden.Do(func() {
			slog.Default().Info("redisstore: the server could compare and delete by itself, but not for this user: "+
				"it runs a script instead, which costs it more", "command", cmd.Parts()[0][0])
		})
		return false, nil
	case class == "OOM":
		return false, nil // the script needs no memory
	}
	return false, err
}
