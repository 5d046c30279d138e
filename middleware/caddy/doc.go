// Package latchcaddy is a module of Caddy with the guards of package middleware, for services
// in any language behind Caddy's reverse_proxy. docs/gateway.md shows it at work.
//
//	xcaddy build --with github.com/httplatch/httplatch/middleware/caddy
//
// The directory cmd/caddy has the same as a program of ten lines.
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
// The store is shared by all configurations of the process that name it. A reload in the middle
// of a request keeps its lease, and its repeats get its answer. If a configuration names another
// store, requests have ten seconds to release what they hold in the old one. Caddy starts
// without a store that does not answer, and guarded requests get 503 until it does.
//
// # Guards
//
// The directive is ordered before handle, route and reverse_proxy, so authentication comes
// before it. Guards run in their order: the first one is outermost.
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
// ([middleware.Lock]) and refuse ([middleware.Refuse]). Their fields are those of package
// policy, contract among them. A lock needs its name, the others can have one, for metrics and
// the console. In JSON, a guard is an object with the fields of package policy, and its name in
// "guard".
//
// A key, a scope or a fingerprint is one of these, or several, with blanks between them:
//
//	{http.auth.user.id}        a placeholder of Caddy, as those of headers, cookies and variables
//	idempotency-key            [keyfunc.IdempotencyKey]; optional-idempotency-key where it may be missing
//	json:/order/id             [keyfunc.JSON]
//	form:order                 [keyfunc.Form]
//	canonical-json             [keyfunc.CanonicalJSON], for a fingerprint
//	global                     [keyfunc.Global], one for all callers
//
// A placeholder without a value refuses the request with 400. Any client can send a header: use
// one only if it is set by authentication, as the copy_headers of forward_auth. The host of the
// request is part of each scope, so two sites can share a store.
//
// The work of a guarded request goes on when its client hangs up. An error of a handler behind
// the guard is given to handle_errors, and an error that is kept is given to it again for a
// repeat.
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
// php_fastcgi takes no transport; these lines do the same:
//
//	try_files {path} {path}/index.php index.php
//	@php path *.php
//	reverse_proxy @php unix//run/php/php-fpm.sock {
//		transport latch fastcgi {
//			split .php
//		}
//	}
//
// Without it, a lost answer would free the key, and the repeat would be a second order. So a
// configuration is not started if a reverse_proxy behind a guard has another transport. After
// four seconds without a request a connection is closed, unless keepalive says otherwise: Node
// closes it after five. A request that was sent is never sent again, whatever lb_retry_match
// says. An answer of FastCGI without Content-Length does not show whether it is whole, and is
// not kept.
//
// The upstream gets Latch-Key and Latch-Attempt, and may answer with Latch-Commit, as
// [middleware.WithUpstreamHeaders] says. Headers of clients that begin with Latch- do not reach
// it.
//
// # Metrics
//
// The metrics of package lockotel are in Caddy's registry, and so on its metrics endpoint. They
// count on over a reload.
package latchcaddy
