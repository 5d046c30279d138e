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
//			store  {env.REDIS_URL}   # redis://..., postgres://... or memory
//			prefix shop:             # Redis: redisstore.WithPrefix
//			table  shop.latch        # PostgreSQL: pgstore.WithTable
//			seal   {env.LATCH_KEY}   # package sealed, AES-256-GCM: 32 bytes in base64; more keys only open
//		}
//	}
//
// All configurations of the process that name the same store share it. So a request keeps its lease
// during a reload, and its repeats get its answer. If a configuration names another store,
// requests have ten seconds to release their keys in the old one. Caddy also starts while the
// store does not answer. Until it answers, guarded requests get 503.
//
// # Guards
//
// Caddy orders the directive before handle, route and reverse_proxy, and after authentication. The
// guards run in the order of the file: the first one is outermost.
//
//	latch /orders* {
//		idempotent orders {
//			scope {http.auth.user.id}
//			key   idempotency-key
//			wait  5s
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
//	{http.auth.user.id}        a placeholder of Caddy, also of headers, cookies and variables
//	idempotency-key            [keyfunc.IdempotencyKey]; optional-idempotency-key where it may be missing
//	json:/order/id             [keyfunc.JSON]
//	form:order                 [keyfunc.Form]
//	canonical-json             [keyfunc.CanonicalJSON], for a fingerprint
//	global                     [keyfunc.Global], one for all callers
//
// If a placeholder has no value, the request is refused with 400. Any client can send a header: use
// one only if your authentication sets it, as with copy_headers of forward_auth. The host of the
// request is part of each scope, so two sites can share a store.
//
// The work of a guarded request goes on when its client hangs up. handle_errors gets an error of a
// handler behind the guard, and gets a kept error again for each repeat.
//
// # The upstream
//
// A reverse_proxy behind a guard needs the transport of this module, which is the transport
// http with [middleware.Upstream] around it:
//
//	reverse_proxy localhost:3000 {
//		transport latch
//	}
//
// It takes the fields of the transport http, or the name of another transport and its fields.
// php_fastcgi does not accept a transport. Use these lines instead:
//
//	try_files {path} {path}/index.php index.php
//	@php path *.php
//	reverse_proxy @php unix//run/php/php-fpm.sock {
//		transport latch fastcgi {
//			split .php
//		}
//	}
//
// Without this transport, a lost answer would free the key, and the repeat would be a second order.
// So Caddy refuses a configuration in which a reverse_proxy behind a guard has another transport.
// Unless keepalive is set, the transport closes a connection after four seconds without a
// request: Node closes it after five. A request that was sent is never sent again, whatever
// lb_retry_match is. An answer of FastCGI without Content-Length does not show whether it is
// whole, and is not kept.
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
