package faults_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

const answerPrefix = "answer of "

// What a store sends, distinguished by its arguments. A server that compares by itself gets the
// entry that it compares with in place of a script.
var (
	claimSent = respproxy.Match{Func: func(args [][]byte) bool {
		return isNamed(args, "set") && !compares(args) || isScript(args) && isGuardedClaim(args)
	}}
	renewSent = respproxy.Match{Func: func(args [][]byte) bool {
		return isScript(args) && len(args) == 7 && !isAnswer(args) || compares(args) && bytes.Equal(args[2], args[4])
	}}
	settleSent = respproxy.Match{Func: func(args [][]byte) bool {
		return isScript(args) && len(args) == 7 && isAnswer(args) || compares(args) && !bytes.Equal(args[2], args[4])
	}}
	removeSent = respproxy.Match{Func: func(args [][]byte) bool {
		return isScript(args) && len(args) == 5 || isNamed(args, "delex") || isNamed(args, "delifeq")
	}}
	lateSent = respproxy.Match{Key: "ownguarded", Func: func(args [][]byte) bool { return isScript(args) && isGuardedClaim(args) }}
)

func isNamed(args [][]byte, name string) bool { return strings.EqualFold(string(args[0]), name) }

func compares(args [][]byte) bool {
	return isNamed(args, "set") && len(args) > 4 && strings.EqualFold(string(args[3]), "ifeq")
}

func isScript(args [][]byte) bool { return strings.HasPrefix(strings.ToLower(string(args[0])), "eval") }

func isAnswer(args [][]byte) bool { return bytes.HasPrefix(args[6], []byte(answerPrefix)) }

// commandFault strikes commands of one host.
type commandFault struct {
	name   string
	match  respproxy.Match
	action func(*rand.Rand) respproxy.Action
}

func always(a respproxy.Action) func(*rand.Rand) respproxy.Action {
	return func(*rand.Rand) respproxy.Action { return a }
}

func held(plan *rand.Rand) respproxy.Action {
	return respproxy.HoldFor(between(plan, campaignBudget/4, 4*campaignBudget))
}

// tooLate is after the caller of a claim has given up.
func tooLate(plan *rand.Rand) respproxy.Action {
	return respproxy.HoldFor(between(plan, 2*campaignBudget, 4*campaignBudget))
}

func delayed(plan *rand.Rand) respproxy.Action {
	return respproxy.DelayReply(between(plan, campaignBudget/4, 2*campaignBudget))
}

var (
	oom        = respproxy.ReplyError("OOM command not allowed when used memory > 'maxmemory'.")
	afterApply = respproxy.ReplyErrorAfterApply("upstream failure")
)

const lateGuarded = "guarded claim: late at the server"

var commandFaults = []commandFault{
	{"claim: reply lost, closed", claimSent, always(respproxy.Swallow(respproxy.Close))},
	{"claim: reply lost, reset", claimSent, always(respproxy.Swallow(respproxy.Reset))},
	{"claim: reply lost, hangs", claimSent, always(respproxy.Swallow(respproxy.Hang))},
	{"claim: reply cut", claimSent, always(respproxy.CutReply(2))},
	{"claim: reply late", claimSent, delayed},
	{"claim: applied, answered by an unknown error", claimSent, always(afterApply)},
	{"claim: refused", claimSent, always(oom)},
	{"claim: request lost, closed", claimSent, always(respproxy.Drop(respproxy.Close))},
	{"claim: request lost, hangs", claimSent, always(respproxy.Drop(respproxy.Hang))},
	{"claim: late at the server", claimSent, held},
	{lateGuarded, lateSent, tooLate},
	{"release: reply lost, closed", removeSent, always(respproxy.Swallow(respproxy.Close))},
	{"release: reply lost, hangs", removeSent, always(respproxy.Swallow(respproxy.Hang))},
	{"release: request lost, reset", removeSent, always(respproxy.Drop(respproxy.Reset))},
	{"release: late at the server", removeSent, held},
	{"release: applied, answered by an unknown error", removeSent, always(afterApply)},
	{"settle: reply lost, closed", settleSent, always(respproxy.Swallow(respproxy.Close))},
	{"settle: reply lost, hangs", settleSent, always(respproxy.Swallow(respproxy.Hang))},
	{"settle: request lost, closed", settleSent, always(respproxy.Drop(respproxy.Close))},
	{"settle: late at the server", settleSent, held},
	{"settle: refused", settleSent, always(oom)},
	{"renewal: reply lost, hangs", renewSent, always(respproxy.Swallow(respproxy.Hang))},
	{"renewal: request lost, closed", renewSent, always(respproxy.Drop(respproxy.Close))},
	{"renewal: late at the server", renewSent, held},
	{"handshake: reply lost", respproxy.Match{Name: "hello|ping"}, always(respproxy.Swallow(respproxy.Close))},
}

// networkFault strikes all of one host's connections for a while.
type networkFault struct {
	name   string
	strike func(h *host, d time.Duration)
}

var networkFaults = []networkFault{
	{"network: one way, no reply arrives", func(h *host, d time.Duration) {
		h.proxy.SwallowReplies(respproxy.Hang)
		h.c.pause(d)
		h.proxy.Clear()
	}},
	{"network: nothing passes, late delivery", func(h *host, d time.Duration) {
		h.proxy.Freeze()
		h.c.pause(d)
		h.proxy.Thaw()
	}},
	{"network: connections refused", func(h *host, d time.Duration) {
		h.proxy.Down()
		h.c.pause(d)
		h.proxy.Up(h.c.t)
	}},
}

// inject strikes h until the campaign stops. A rule counts for as many commands
// as it has acted on.
func (h *host) inject() {
	plan := rand.New(rand.NewPCG(h.c.seed, uint64(2000+h.n)))
	for !h.c.stopped() {
		if plan.IntN(25) == 0 {
			f := networkFaults[plan.IntN(len(networkFaults))]
			d := between(plan, campaignBudget/5, 3*campaignBudget)
			if plan.IntN(5) == 0 {
				d = between(plan, campaignLease, 2*campaignLease)
			}
			f.strike(h, d)
			h.c.injected.Add(f.name)
			continue
		}
		f := commandFaults[plan.IntN(len(commandFaults))]
		match, action := f.match, f.action(plan)
		match.Count = 1 + plan.IntN(3)
		rule := h.proxy.On(match, action)
		h.c.pause(between(plan, 20*time.Millisecond, 150*time.Millisecond))
		h.proxy.Clear()
		h.c.injected.AddN(f.name, rule.Hits())
		if f.name == lateGuarded && rule.Hits() > 0 {
			h.c.working.Go(func() { h.c.countRefused(rule) })
		}
	}
}

// pause waits, but not longer than the campaign.
func (c *campaign) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.stop:
	}
}

// serverFault strikes the server, and with it all hosts, or a process.
type serverFault struct {
	name   string
	weight int
	strike func(c *campaign, d time.Duration)
}

var serverFaults = []serverFault{
	{"server: stands still (SIGSTOP)", 4, func(c *campaign, d time.Duration) {
		c.server.Stop()
		c.pause(d)
		c.server.Cont()
	}},
	{"server: CLIENT PAUSE", 4, func(c *campaign, d time.Duration) {
		c.server.Do(c.t, "CLIENT", "PAUSE", d.Milliseconds(), "WRITE")
		c.pause(d)
	}},
	{"server: SCRIPT FLUSH", 6, func(c *campaign, _ time.Duration) { c.server.Do(c.t, "SCRIPT", "FLUSH") }},
	{"server: all connections closed", 4, func(c *campaign, _ time.Duration) {
		c.server.Do(c.t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	}},
	{"server: busy with one command", 4, func(c *campaign, d time.Duration) {
		c.server.Do(c.t, "DEBUG", "SLEEP", d.Seconds())
	}},
	{"server: busy with a script", 4, func(c *campaign, d time.Duration) {
		const round = 20 * time.Nanosecond // about
		c.server.Do(c.t, "EVAL", "for i = 1, tonumber(ARGV[1]) do end return 1", 0, int64(d/round))
	}},
	{"server: a replica for a while", 4, func(c *campaign, d time.Duration) {
		c.server.Do(c.t, "REPLICAOF", "127.0.0.1", 1)
		c.pause(d)
		c.server.Promote(c.t)
	}},
	{"server: killed (SIGKILL), restarted from its log", 2, func(c *campaign, d time.Duration) {
		c.server.Kill()
		c.pause(d)
		c.server.Restart(c.t)
	}},
	{"process: killed (SIGKILL) while it works", 6, func(c *campaign, d time.Duration) {
		key := victimKey(c.victims.Load() + 1)
		cmd, out := startChild(c.t, "victim", c.server.URL(), childKey+"="+key)
		if !out.Scan() {
			c.t.Errorf("%s does not run", key)
		}
		c.victims.Add(1) // from now on, others want to run it too
		c.pause(d)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}},
}

// victimKey names a run that a process dies in.
func victimKey(n int64) string { return fmt.Sprintf("victim=%d", n) }

func (c *campaign) injectIntoServer(plan *rand.Rand) {
	sum := 0
	for _, f := range serverFaults {
		sum += f.weight
	}
	draw := plan.IntN(sum)
	for _, f := range serverFaults {
		if draw -= f.weight; draw < 0 {
			d := between(plan, campaignBudget/5, 2*campaignBudget)
			if plan.IntN(5) == 0 {
				d = between(plan, campaignLease, 2*campaignLease)
			}
			f.strike(c, d)
			c.injected.Add(f.name)
			break
		}
	}
	c.pause(between(plan, campaignBudget/2, 2*campaignBudget))
}
