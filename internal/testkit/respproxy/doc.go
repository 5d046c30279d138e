// Package respproxy is a TCP proxy in front of one redis-server that can lose,
// hold, cut and forge each command and reply that passes through it:
//
//	srv := redistest.Start(t)
//	p := respproxy.Start(t, srv.Addr())
//	client := redis.NewClient(&redis.Options{Addr: p.Addr()})
//
//	// The founding incident: the next SET on a key with "user=42" in it is
//	// applied, and its reply never arrives.
//	lost := p.On(respproxy.Match{Name: "set", Key: "user=42", Count: 1}, respproxy.Swallow(respproxy.Close))
//	...
//	lost.Wait(t, 1)
//
// # What it understands
//
// Commands of one connection keep their order, pipelined or not. Replies are
// parsed (RESP2 and RESP3), so reply n belongs to command n. Push messages pass
// at any place and are not replies. HELLO, AUTH, CLIENT SETINFO and similar
// commands pass like all others, and a Match without a Name selects them too.
//
// Not supported, because their answers are not one per command: CLIENT REPLY
// OFF and SKIP, and MONITOR. RESP2 subscriptions pass, but rules on such a
// connection may act on the wrong message.
//
// [StartRedis62] starts a proxy that makes the server answer like an older server.
//
// # What it is not
//
// When the server is dead the proxy still accepts a connection and then closes
// it. For a refused connection use [Proxy.Down].
package respproxy
