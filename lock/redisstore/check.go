package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
	"github.com/httplatch/httplatch/lock/redisstore/internal/failure"
	"github.com/httplatch/httplatch/lock/redisstore/internal/wire"
)

// Check returns an error with all problems that would keep the store from working, each with a
// cure, or nil. It checks that the server can be reached and is a master, the permissions that the
// package documentation lists, the server's version (6.2 or later), that a Cluster has a cluster
// client, that no maxmemory-policy evicts locks, and that no proxy sends the claim of a set to the server
// of its first key ([WithoutPluralClaims]).
//
// A server without any persistence is no problem for locks. If the store has left a receipt, the next Check
// logs a warning, to [slog.Default], once, unless the user may not run CONFIG GET.
//
// It makes about a dozen round trips and touches some short-lived keys under the
// prefix. Readiness probes may call it; a service may also start without it.
func (s *Store) Check(ctx context.Context) error {
	masters, err := s.nodes.masters(ctx)
	if err != nil {
		return err
	}
	var f findings
	for _, master := range masters {
		if s.checkServer(ctx, master, &f); f.stop != nil {
			return f.stop
		}
	}
	if s.checkCommands(ctx, masters[0], &f); f.stop != nil {
		return f.stop
	}
	s.checkSets(ctx, masters[0], &f)
	return f.join()
}

// findings collects problems, one for each class.
type findings struct {
	all    []error
	denied []string
	stop   error // ends the check: further commands would find nothing
}

func (f *findings) add(class string, cause error, cure string) {
	if !slices.ContainsFunc(f.all, func(err error) bool { return failure.ClassOf(err) == class }) {
		f.all = append(f.all, failure.New(class, cause, cure))
	}
}

// failed notes the error of a command.
func (f *findings) failed(command string, err error) {
	var is *failure.Error
	switch {
	case !errors.As(err, &is), is.Class() == "NOSCRIPT", failure.IsSyntaxError(err):
	case is.Class() == "NOPERM":
		f.deny(command, err.Error())
	case is.Class() == strings.ToUpper(is.Class()), is.Class() == "command", is.Class() == "reply":
		f.add(is.Class(), is.Cause(), failure.Cure(is.Class()))
	default:
		f.stop = err
	}
}

func (f *findings) deny(command, text string) {
	switch {
	case strings.Contains(text, "key"):
		command += " on keys with the prefix"
	case strings.Contains(text, "channel"):
		command += " on channels with the prefix"
	}
	f.denied = append(f.denied, command)
}

func (f *findings) join() error {
	if len(f.denied) > 0 {
		f.add("NOPERM", fmt.Errorf("the user may not run %s", strings.Join(f.denied, ", ")), failure.Cure("NOPERM"))
	}
	return errors.Join(f.all...)
}

// checkServer judges a server by its INFO.
func (s *Store) checkServer(ctx context.Context, master *server, f *findings) {
	info, err := infoOf(ctx, master)
	if err != nil {
		f.failed("INFO", err)
		return
	}
	if info["redis_mode"] == "sentinel" || info["server_mode"] == "sentinel" { // the name in Valkey
		f.stop = failure.New("SENTINEL", errors.New("this is a Sentinel, not a server that keeps data"),
			"use redis.NewFailoverClient or a redis-sentinel:// URL")
		return
	}
	if v := info["redis_version"]; !supported(v) {
		f.add("VERSION", fmt.Errorf("the server is Redis %s", v), "use Redis 6.2 or later, 7.0 or later for the fastest claim, or Valkey")
	}
	if info["cluster_enabled"] == "1" && s.nodes.cluster == nil {
		f.add("MOVED", errors.New("the server is part of a Cluster, the client is not a cluster client"), failure.Cure("MOVED"))
	}
	if info["role"] == "slave" {
		f.add("READONLY", errors.New("the server is a replica"), failure.Cure("READONLY"))
	}
	if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" && info["maxmemory"] != "0" {
		f.add("EVICTION", fmt.Errorf("maxmemory-policy %s removes locks and receipts when memory is short", policy),
			"set maxmemory-policy noeviction, or give httplatch a Redis of its own")
	}
	if s.receipts.Load() && info["aof_enabled"] == "0" {
		s.persistence.Do(func() { warnVolatile(ctx, master) })
	}
}

// warnVolatile logs that a restart of master loses all receipts. It is no finding, since locks need
// no persistence. Many users may not run CONFIG, and services that run Redis for others deny it: then
// nothing is known, and nothing logged.
func warnVolatile(ctx context.Context, master *server) {
	answer, err := ask(ctx, master, "config", "get", "save")
	if err != nil {
		return
	}
	if text := fmt.Sprint(answer); text == "[save ]" || text == "map[save:]" { // the latter in RESP3, by a client of the user
		slog.Default().Warn("redisstore: the server has no persistence: a restart loses all receipts, and a repeat of an order " +
			"then runs as a second order; set appendonly yes")
	}
}

// infoOf returns the INFO of a server.
func infoOf(ctx context.Context, master *server) (map[string]string, error) {
	answer, err := ask(ctx, master, "info")
	text, _ := answer.(string)
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[name] = value
		}
	}
	return info, err
}

// supported reports whether v is 6.2 or later. It is also true if v is not a version: a server that
// reports none may still work.
func supported(v string) bool {
	var major, minor int
	n, _ := fmt.Sscanf(v, "%d.%d", &major, &minor)
	return n < 2 || major > 6 || major == 6 && minor >= 2
}

// checkCommands tries every command, on a name that no entry has.
func (s *Store) checkCommands(ctx context.Context, master *server, f *findings) {
	name := s.prefix + "check"
	_, err := ask(ctx, master, "ping")
	f.failed("PING", err)
	_, err = ask(ctx, master, "scan", "0", "match", name, "count", int64(1), "type", "string")
	f.failed("SCAN", err)
	_, err = s.nodes.do(ctx, wire.NewCommand(name, "set", name, "", "nx", "get", "px", int64(1000)))
	f.failed("SET", err)
	_, err = s.nodes.do(ctx, wire.NewCommand(name, "evalsha", readScript.sha, int64(1), name))
	f.failed("EVALSHA", err)
	probe := []any{"eval", probeScript.source, int64(1), name}
	if s.notices != nil {
		probe = append(probe, "publish")
	}
	answer, err := s.nodes.do(ctx, wire.NewCommand(name, probe...))
	f.failed("EVAL", err)
	if s.notices != nil {
		s.checkSubscribe(ctx, name, f)
	}

	results, _ := answer.([]any)
	for pair := range slices.Chunk(results, 2) {
		command, _ := pair[0].(string)
		text, _ := pair[len(pair)-1].(string)
		if code := failure.CodeOf(text); code != "" && code != "NOPERM" {
			f.add(code, errors.New(text), failure.Cure(code))
		} else {
			f.deny(command+" in a script", text)
		}
	}
}

// setProbe is the lease of the keys that checkSets claims.
const setProbe = 10 * time.Second

// checkSets claims some keys at once, and deletes each by itself. A deletion that does not find its entry
// shows a proxy that shares keys among servers, and sends the claim to the server of the first key. If
// one server has all of the keys, the proxy is not detected: the keys are random, so another check
// detects it.
func (s *Store) checkSets(ctx context.Context, master *server, f *findings) {
	var keys [8]string
	claims, deletes := make([]lock.Claim, len(keys)), &wire.Command{Batch: true}
	for i := range keys {
		keys[i] = fmt.Sprintf("check=%d#%016x", i, rand.Uint64()) //nolint:gosec // no secret
		claims[i] = lock.Claim{Token: keys[i], Attempt: 1, Lease: setProbe}
		name, _ := entry.Name(s.prefix, keys[i])
		deletes.Then("del", name)
	}
	began := time.Now()
	_, err := s.ClaimSet(ctx, keys[:], claims)
	if is, ok := errors.AsType[*failure.Error](err); ok && is.Class() == "reply" {
		f.add("SETS", is.Cause(), setsCure)
	}
	if err != nil {
		return // the check of the commands has reported it, or sets are claimed in order
	}
	answer, err := master.Do(ctx, deletes)
	if deleted, _ := answer.([]any); err == nil && time.Since(began) < setProbe/2 && deleted[0] == int64(1) && slices.Contains(deleted, any(int64(0))) {
		f.add("SETS", errors.New("a script on several keys has changed some of them on a server on which other commands do not find them"), setsCure)
	}
}

const setsCure = "a proxy shares the keys among several servers; use redisstore.WithoutPluralClaims"
