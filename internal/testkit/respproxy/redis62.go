package respproxy

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// StartRedis62 is [Start] for a proxy that makes a newer server answer like
// Redis 6.2, as far as package redisstore can notice:
//
//   - SET with NX and GET is a syntax error, if the server finds no other error first
//   - refusals in scripts have the form and the words of Redis 6.2
//   - INFO reports this version
//   - newer commands are unknown
//
// Faults go on a separate proxy in front of this one.
func StartRedis62(tb testing.TB, upstream string) *Proxy {
	tb.Helper()
	p := Start(tb, upstream)
	p.On(Match{Name: "set", Func: isSetNXGet}, Translate(withoutSyntax, nil))
	p.On(Match{Name: "eval|evalsha"}, Translate(nil, scriptReply62))
	p.On(Match{Name: "info"}, Translate(nil, info62))
	p.On(Match{Name: "client", Func: isYoungerClient}, ReplyError("ERR Unknown subcommand or wrong number of arguments for 'SETINFO'. Try CLIENT HELP."))
	p.On(Match{Name: "set", Func: func(args [][]byte) bool { return has(args, "ifeq") }}, ReplyError("ERR syntax error"))
	p.On(Match{Name: "delifeq|delex|eval_ro|evalsha_ro|fcall|fcall_ro|spublish|ssubscribe|expiretime|pexpiretime"},
		ReplyError("ERR unknown command `x`, with args beginning with: "))
	return p
}

func isSetNXGet(args [][]byte) bool { return has(args, "nx") && has(args, "get") }

func isYoungerClient(args [][]byte) bool {
	return slices.ContainsFunc([]string{"setinfo", "maint_notifications", "no-touch", "no-evict"}, func(name string) bool {
		return len(args) > 1 && strings.EqualFold(string(args[1]), name)
	})
}

func has(args [][]byte, option string) bool {
	return len(args) > 3 && slices.ContainsFunc(args[3:], func(arg []byte) bool { return strings.EqualFold(string(arg), option) })
}

// withoutSyntax makes the server itself report the syntax error. It reports it
// after it has checked whether it may execute the command at all, as 6.2 does.
func withoutSyntax(args [][]byte) [][]byte { return append(slices.Clip(args), []byte("not-in-6.2")) }

var versions = regexp.MustCompile(`(?m)^(redis_version:).*?(\r?)$|^(?:valkey_version|server_name):.*\n`)

func info62(raw []byte) []byte {
	head, value, found := bytes.Cut(raw, []byte("\r\n"))
	if !found || head[0] != '$' && head[0] != '=' {
		return raw // an error
	}
	value = bytes.TrimSuffix(value, []byte("\r\n"))
	value = versions.ReplaceAllFunc(value, func(line []byte) []byte {
		if bytes.HasPrefix(line, []byte("redis_version:")) {
			return []byte("redis_version:6.2.14\r")
		}
		return nil
	})
	return bulk(head[0], value)
}

// raised matches the end of an error that a script has not caught, from Redis 7 on.
var raised = regexp.MustCompile(`^-(.*) script: ([0-9a-f]{40}), on @user_script:([0-9]+)\.\r\n$`)

// scriptReply62 rewords the reply of a script: an error, or an array of texts and of errors that the
// script has caught.
func scriptReply62(raw []byte) []byte {
	if m := raised.FindSubmatch(raw); m != nil {
		line := string(m[3])
		return fmt.Appendf(nil, "-ERR Error running script (call to f_%s): @user_script:%s: %s\r\n", m[2], line, scriptError62(string(m[1]), line))
	}
	all := texts(raw)
	if all == nil {
		return raw
	}
	out := fmt.Appendf(nil, "*%d\r\n", len(all))
	for _, text := range all {
		caught := scriptError62(text, "12")
		if caught != text {
			caught += "\r\n" // as in the source of 6.2
		}
		out = append(out, bulk('$', []byte(caught))...)
	}
	return out
}

// scriptError62 converts an error that Redis 7.0 or a later one gives to a script to the form of
// Redis 6.2. It does not change the text of the command itself.
func scriptError62(text, line string) string {
	place := "@user_script: " + line + ": "
	denied, isDenied := strings.CutPrefix(text, "ERR ACL failure in script: ") // from 7.2 on
	switch code, _, _ := strings.Cut(text, " "); {
	case slices.Contains([]string{"OOM", "READONLY", "MISCONF", "NOREPLICAS"}, code):
		return place + "-" + text
	case strings.HasPrefix(text, "ERR The user executing the script"): // 7.0
		return place + strings.TrimPrefix(text, "ERR ")
	case isDenied && strings.Contains(denied, "key"):
		return place + "The user executing the script can't access at least one of the keys mentioned in the command arguments"
	case isDenied && strings.Contains(denied, "channel"):
		return place + "The user executing the script can't publish to the channel mentioned in the command"
	case isDenied:
		return place + "The user executing the script can't run this command or subcommand"
	}
	return text
}

// texts returns the elements of an array that has only texts, nil for any other reply.
func texts(raw []byte) []string {
	if len(raw) == 0 || raw[0] != '*' {
		return nil
	}
	head, rest, _ := bytes.Cut(raw, []byte("\r\n"))
	n, err := strconv.Atoi(string(head[1:]))
	if err != nil {
		return nil
	}
	all := []string{}
	for range n {
		head, value, found := bytes.Cut(rest, []byte("\r\n"))
		if !found || head[0] != '$' {
			return nil
		}
		size, err := strconv.Atoi(string(head[1:]))
		if err != nil || size < 0 {
			return nil
		}
		all, rest = append(all, string(value[:size])), value[size+2:]
	}
	return all
}
