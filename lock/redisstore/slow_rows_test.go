package redisstore_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// slowRow is a client with a slow part, or before a slow server.
type slowRow struct {
	set   func(o *redis.Options, pass func()) // its options
	hook  func(pass func()) redis.Hook
	hangs bool // a call passes the slow part when the part is over, and not after two seconds
	begin func(t *testing.T, s *slowScene) (end func())

	reconnects bool // the connections that there are end when it begins
	cold       bool // the client has sent nothing before
	receipt    int  // bytes of the receipt of a single caller: more than fits between client and server
}

// silence is a server that no longer answers anything.
func silence(_ *testing.T, s *slowScene) (end func()) {
	s.proxy.Freeze()
	return s.proxy.Thaw
}

func slowRows() map[string]slowRow {
	return map[string]slowRow{
		"silence, default options":       {begin: silence},
		"silence, ReadTimeout -1":        {begin: silence, set: func(o *redis.Options, _ func()) { o.ReadTimeout = -1 }},
		"silence, ReadTimeout -2":        {begin: silence, set: func(o *redis.Options, _ func()) { o.ReadTimeout = -2 }},
		"silence, WriteTimeout -1":       {begin: silence, receipt: 16 << 20, set: func(o *redis.Options, _ func()) { o.WriteTimeout = -1 }},
		"silence, WriteTimeout -2":       {begin: silence, receipt: 16 << 20, set: func(o *redis.Options, _ func()) { o.WriteTimeout = -2 }},
		"silence, both -1":               {begin: silence, set: func(o *redis.Options, _ func()) { o.ReadTimeout, o.WriteTimeout = -1, -1 }},
		"silence, both -2":               {begin: silence, set: func(o *redis.Options, _ func()) { o.ReadTimeout, o.WriteTimeout = -2, -2 }},
		"silence, ContextTimeoutEnabled": {begin: silence, set: func(o *redis.Options, _ func()) { o.ReadTimeout, o.ContextTimeoutEnabled = -1, true }},
		"silence, new connections":       {begin: silence, reconnects: true},
		"silence, new connections, no timeouts": {begin: silence, reconnects: true, set: func(o *redis.Options, _ func()) {
			o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, -2, -2
		}},
		"silence, first command": {begin: silence, cold: true},
		"refused connections": {begin: func(t *testing.T, s *slowScene) func() {
			t.Helper()
			s.proxy.Down()
			return func() { s.reconnect(t) }
		}},
		"pool of one that is taken": {
			set: func(o *redis.Options, _ func()) { o.PoolSize, o.PipelinePoolSize, o.ReadTimeout = 1, -1, -1 },
			begin: func(t *testing.T, s *slowScene) func() {
				t.Helper()
				return occupy(t, s)
			},
		},

		"CredentialsProvider takes 2 s": {reconnects: true, set: func(o *redis.Options, pass func()) {
			o.CredentialsProvider = func() (user, password string) { pass(); return "", "" }
		}},
		"CredentialsProvider hangs": {reconnects: true, hangs: true, set: func(o *redis.Options, pass func()) {
			o.CredentialsProvider = func() (user, password string) { pass(); return "", "" }
		}},
		"CredentialsProviderContext hangs": {reconnects: true, hangs: true, set: func(o *redis.Options, pass func()) {
			o.CredentialsProviderContext = func(context.Context) (user, password string, err error) { pass(); return "", "", nil }
		}},
		"StreamingCredentialsProvider takes 2 s": {reconnects: true, set: func(o *redis.Options, pass func()) {
			o.StreamingCredentialsProvider = subscription(pass)
		}},
		"OnConnect takes 2 s": {reconnects: true, set: func(o *redis.Options, pass func()) {
			o.OnConnect = func(context.Context, *redis.Conn) error { pass(); return nil }
		}},
		"Dialer hangs":                {reconnects: true, hangs: true, set: dialsAfter},
		"Dialer hangs, first command": {cold: true, hangs: true, set: dialsAfter},
		"Limiter.Allow takes 2 s":     {set: func(o *redis.Options, pass func()) { o.Limiter = limiterOf{allow: pass} }},
		"Limiter.Report takes 2 s":    {set: func(o *redis.Options, pass func()) { o.Limiter = limiterOf{report: pass} }},

		"dial hook takes 2 s":     {reconnects: true, hook: func(pass func()) redis.Hook { return hookOf{dial: pass} }},
		"process hook takes 2 s":  {hook: func(pass func()) redis.Hook { return hookOf{command: pass} }},
		"pipeline hook takes 2 s": {hook: func(pass func()) redis.Hook { return hookOf{pipeline: pass} }},
		"both hooks hang":         {hangs: true, hook: func(pass func()) redis.Hook { return hookOf{command: pass, pipeline: pass} }},
		"hook takes 2 s after its command": {hook: func(pass func()) redis.Hook {
			return hookOf{after: pass}
		}},
		"hook takes 2 s, first command": {cold: true, hook: func(pass func()) redis.Hook {
			return hookOf{command: pass, pipeline: pass}
		}},
		"hook takes 2 s, silence": {begin: silence, hook: func(pass func()) redis.Hook {
			return hookOf{command: pass, pipeline: pass}
		}},
		"OnConnect takes 2 s, silence": {begin: silence, reconnects: true, set: func(o *redis.Options, pass func()) {
			o.ReadTimeout = -2
			o.OnConnect = func(context.Context, *redis.Conn) error { pass(); return nil }
		}},
	}
}

// dialsAfter makes a client's dials wait, even if their contexts end.
func dialsAfter(o *redis.Options, pass func()) {
	o.Dialer = func(context.Context, string, string) (net.Conn, error) { pass(); return nil, nil } //nolint:nilnil // through goes on
}
