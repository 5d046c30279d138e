// Package latchcaddy is a module of Caddy with the guards of package middleware, for services
// in any language behind Caddy's reverse_proxy. docs/gateway.md shows it at work.
//
//	xcaddy build --with github.com/httplatch/httplatch/middleware/caddy
//
// The directory cmd/caddy has a program of ten lines that does the same.
//
// # The store
//
// A global option of the Caddyfile (the app "latch" in JSON) names the store of all guards:
//
//	{
//		latch {
//			store {env.REDIS_URL}
//			prefix shop:
//			seal {env.LATCH_KEY}
//		}
//	}
//
// The store is redis://..., postgres://... or memory, and prefix is [redisstore.WithPrefix]. For
// PostgreSQL, table is [pgstore.WithTable]. seal has the keys of package sealed, with AES-256-GCM:
// 32 bytes in base64, of which only the first encrypts.
//
// All configurations of the process that name the same store share it. So a request keeps its lease
// during a reload, and its repeats get its answer. If a configuration names another store,
// requests have ten seconds to release their keys in the old one. A reload to another store that does
// not answer fails. Caddy also starts while the store does not answer. Until it answers, guarded
// requests get 503.
//
// # Guards
//
// Caddy orders the directive before handle, route and reverse_proxy, and after authentication. The
// guards run in the order of the file: the first one is outermost.
//
//	latch /orders* {
//		idempotent orders {
//			scope {http.auth.user.id}
//			key idempotency-key
//			wait 5s
//		}
//		lock user {
//			key {http.auth.user.id}
//		}
//	}
//
// The guards are idempotent ([middleware.Idempotent]), dedupe ([middleware.Dedupe]), lock
// ([middleware.Lock]) and refuse ([middleware.Refuse]). They have the fields of package policy,
// including contract. A lock needs a name. The other guards can have one, for metrics and the
// console. In JSON, a guard is an object with the fields of package policy, and its name in
// "guard".
//
// A key, a scope or a fingerprint is one of these, or several, with blanks between them:
//
//	{http.auth.user.id}        a placeholder of Caddy: a header is [keyfunc.Header], a cookie is hashed, others are kept
//	idempotency-key            [keyfunc.IdempotencyKey]; optional-idempotency-key where it may be missing
//	json:/order/id             [keyfunc.JSON]
//	form:order                 [keyfunc.Form]
//	canonical-json             [keyfunc.CanonicalJSON], for a fingerprint
//	global                     [keyfunc.Global], one for all callers
//
// If a placeholder has no value, the request is refused with 400. Any client can send a header: use
// one only if your authentication sets it, as with copy_headers of forward_auth. The host of the
// request is part of each scope, so two sites can share a store. It is not part of the key of a lock,
// which other programs may have to build: add {http.request.host} to it if two sites have users of
// their own.
//
// The URL is the one that the client has asked for: for the matcher, for keys with placeholders, and
// in the identity of a request. What try_files, php_fastcgi or rewrite have made of it is for the
// handlers behind the guards. Inside handle_path, and after "uri strip_prefix", the matcher sees the
// path without the prefix. In JSON, such a matcher is in "match" of the handler: the matchers of its
// route see the rewritten URL.
//
// The work of a guarded request goes on when its client hangs up. handle_errors gets an error of a
// handler behind the guard, and gets a kept error again for each repeat.
//
// # The upstream
//
// Each reverse_proxy behind a guard, also one of php_fastcgi, gets the transport of this module: its
// own with [middleware.Upstream] around it. Without it, a lost answer would free the key, and the
// repeat would be a second order. Active health checks already use a transport when the guards are
// made, so a reverse_proxy with such checks has to name it. It takes the fields of the transport
// http, or the name of another transport and its fields:
//
//	reverse_proxy localhost:3000 {
//		health_uri /health
//		transport latch {
//			response_header_timeout 30s
//		}
//	}
//
// It also has to name it in routes that a module of another author hides in unexported fields.
//
// A reverse_proxy in handle_errors or in handle_response of intercept runs when the guards of its
// server are over, and would get the request again for each repeat. So Caddy refuses a configuration
// that has one, unless it has "method GET".
//
// The transport closes a connection after four seconds without a request, because Node closes it
// after five, unless keepalive has another value than the two minutes of Caddy. A request that was
// sent is never sent again, whatever lb_retry_match is. An answer of FastCGI without Content-Length
// does not show whether it is whole, and is not kept.
//
// The upstream gets Latch-Key and Latch-Attempt, and may answer with Latch-Commit, as
// [middleware.WithUpstreamHeaders] says. Headers of clients that begin with Latch- do not reach
// it.
//
// # Metrics
//
// The metrics of package lockotel are in Caddy's registry, and so on its metrics endpoint. A reload
// does not reset them.
package latchcaddy
