package semantics_test

import (
	"context"
	"net/http"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

func keySection() section {
	optional := keyedBy(keyfunc.Optional(keyfunc.IdempotencyKey))
	once := func(m mod) []step {
		return []step{submission(m).gets(created(1)), submission(m).gets(replay())}
	}
	refused := func(m mod, w want) []step { return []step{submission(m).gets(w)} }
	return section{"The key", []row{
		{name: "a string, in quotes", steps: once(key(`"8e03978e"`)), effects: 1, practice: "draft 2.1: the only form"},
		{name: "bare", steps: once(key("8e03978e")), effects: 1, practice: "draft 2.1: not allowed; Stripe, PayPal and Adyen: the usual form", why: "in use"},
		{
			name: "in quotes, then bare", effects: 1, practice: "idemlease, idempo (Ruby): one key; celeris: two",
			steps: []step{submission(key(`"8e03978e"`)).gets(created(1)), submission(key("8e03978e")).gets(replay())},
		},
		{
			name: "with escapes", effects: 2, practice: "RFC 8941 3.3.3",
			steps: []step{
				submission(key(`"a\"b\\c"`)).gets(created(1)), submission(key(`"a\"b\\c"`)).gets(replay()),
				submission(key(`"a\\b\"c"`)).gets(created(2)),
			},
		},
		{name: "missing", steps: refused(key(), missing()), practice: "draft 2.7: 400; idempotency4j: 422; Stripe: runs", why: "this route requires a key; see the next row"},
		{
			name: "missing, `Optional`", guard: optional, effects: 2, practice: "Stripe: runs, unprotected",
			steps: []step{submission(key()).gets(created(1)), submission(key()).gets(created(2))},
		},
		{
			name: "missing in the repeat", effects: 1, practice: "draft 2.7",
			steps: []step{submission().gets(created(1)), submission(key()).gets(missing())},
		},
		{
			name: "missing in the repeat, `Optional`", guard: optional, effects: 3, practice: "Stripe: runs",
			steps: []step{submission().gets(created(1)), submission(key()).gets(created(2)), submission(key()).gets(created(3))},
		},
		{name: "empty", steps: refused(as("with an empty key", key("")), invalid()), practice: "idempo (Ruby): 400; arun0009: runs, unprotected", why: "the client meant to be protected"},
		{name: "empty, `Optional`", guard: optional, steps: refused(as("with an empty key", key("")), invalid()), practice: "arun0009: runs, with a warning", why: "the client meant to be protected"},
		{name: "an empty string", steps: refused(key(`""`), invalid()), practice: "RFC 8941 allows it", why: "one bucket for all"},
		{name: "sent twice", steps: refused(key("a", "b"), invalid()), practice: "draft 2.1: MUST NOT; idemlease, Echo Pro: 400"},
		{name: "sent twice, equal", steps: refused(key("a", "a"), invalid()), practice: "draft 2.1: MUST NOT; most: the first counts", why: "a proxy may read the other one"},
		{name: "a list", steps: refused(key("a, b"), invalid()), practice: "Echo Pro: 400; most: one key with a comma", why: "a proxy may have joined two"},
		{name: "a comma in quotes", steps: once(key(`"a, b"`)), effects: 1, practice: "RFC 8941"},
		{name: "parameters", steps: refused(key(`"a";v=1`), invalid()), practice: "RFC 8941 has them; idemlease: 400", why: "the draft defines none"},
		{name: "an inner list", steps: refused(key(`("a")`), invalid()), practice: "draft 2.1: a String"},
		{name: "an open quote", steps: refused(key(`"a`), invalid()), practice: "RFC 8941: fails to parse"},
		{name: "a quote inside a bare key", steps: refused(key(`a"b`), invalid()), practice: "RFC 8941: fails to parse"},
		{name: "an invalid escape", steps: refused(key(`"a\x"`), invalid()), practice: "RFC 8941: fails to parse"},
		{name: "a blank inside a bare key", steps: refused(key("two words"), invalid()), practice: "Solidgate: 400; Stripe: any string", why: "not a token"},
		{name: "a blank in quotes", steps: once(key(`"two words"`)), effects: 1, practice: "RFC 8941"},
		{
			name: "blanks around it", effects: 1, practice: "RFC 9110 5.5: not part of the value",
			steps: []step{submission(key("8e03978e")).gets(created(1)), submission(as("with blanks around the key", key("  \t8e03978e  "))).gets(replay())},
		},
		{name: "255 bytes", steps: once(longKey(255)), effects: 1, practice: "Stripe: 255; Adyen: 64; Hono: 256"},
		{name: "256 bytes", steps: refused(longKey(256), invalid()), practice: "Stripe, granit: 400"},
		{name: "one byte", steps: once(key("a")), effects: 1, practice: "fiber: exactly 36; some: at least 16", why: "the client is responsible for unique keys; the scope separates users"},
		{name: "not ASCII", steps: refused(key("clé"), invalid()), practice: "RFC 8941: ASCII; Stripe: any string", why: "two spellings of one letter"},
		{name: "a tab inside", steps: refused(as("with a tab in the key", key("a\tb")), invalid()), practice: "idemlease, celeris: 400"},
		{
			name: "upper case", effects: 2, practice: "opaque everywhere",
			steps: []step{submission(key("abc")).gets(created(1)), submission(key("ABC")).gets(created(2))},
		},
		{
			name: "a number, in quotes and bare", effects: 1, practice: "RFC 8941: of two types", why: "clients mix them up",
			steps: []step{submission(key("42")).gets(created(1)), submission(key(`"42"`)).gets(replay())},
		},
		{
			name: "what a store could misread", effects: 2, practice: "draft 5: injection",
			steps: []step{submission(key("latch:once:*/../%0a")).gets(created(1)), submission(key("latch:once:*/../%0A")).gets(created(2)), submission(key("latch:once:*/../%0A")).gets(replay())},
		},
		{
			name: "the header's name in lower case", effects: 1, practice: "RFC 9110 5.1",
			steps: []step{submission().gets(created(1)), submission(key(), header("idempotency-key", "8e03978e")).gets(replay())},
		},
		{name: "under `X-Idempotency-Key`", steps: refused(mod{"with the key in `X-Idempotency-Key`", func(r *request) { r.set("Idempotency-Key"); r.set("X-Idempotency-Key", "a") }}, missing()), practice: "fiber: the default name; idempo (Ruby): either", why: "one name, or a proxy sees another request"},
		{
			name: "under a name of one's own, by `Header`", guard: keyedBy(keyfunc.Header("PayPal-Request-Id")), effects: 1, practice: "PayPal, Twilio, Checkout.com",
			steps: []step{submission(header("PayPal-Request-Id", "a")).gets(created(1)), submission(header("PayPal-Request-Id", "a")).gets(replay())},
		},
		{
			name: "in the body, by `JSON`", guard: keyedBy(keyfunc.JSON("/idempotency_key")), effects: 2, practice: "Square, Google Standard Payments",
			steps: []step{
				submission(body(`{"idempotency_key":"a","sku":"tea"}`)).gets(created(1)),
				submission(body(`{"idempotency_key":"a","sku":"tea"}`)).gets(replay()),
				submission(body(`{"idempotency_key":"b","sku":"tea"}`)).gets(created(2)),
				submission(body(`{"idempotency_key":"b","sku":"coffee"}`)).gets(reused()),
			},
		},
		{
			name: "in the query, by `Query`", guard: keyedBy(keyfunc.Query("once")), effects: 1, practice: "links in mails, webhooks",
			steps: []step{
				submission(target("/orders?once=a")).gets(created(1)), submission(target("/orders?once=a")).gets(replay()),
				submission(target("/orders?once=a&once=b")).gets(invalid()), submission(target("/orders?once=")).gets(missing()),
			},
		},
	}}
}

// scoped is Idempotent with another scope.
func scoped(scope keyfunc.Func) guard {
	return func(l *lock.Locker) func(http.Handler) http.Handler {
		return latch.Idempotent(l, scope, keyfunc.IdempotencyKey)
	}
}

// twice sends two requests, which are not repeats of each other.
func twice(a, b []mod) []step {
	return []step{submission(a...).gets(created(1)), submission(b...).gets(created(2))}
}

// again sends a request, and b, which is the same.
func again(a, b []mod) []step {
	return []step{submission(a...).gets(created(1)), submission(b...).gets(replay())}
}

// other sends a request, and b under its key, which is another.
func other(a, b []mod) []step {
	return []step{submission(a...).gets(created(1)), submission(b...).gets(reused())}
}

func identitySection() section {
	anonymous := keyfunc.Context(func(context.Context) string { return "" })
	byHost := keyfunc.Join(func(r *http.Request) (string, error) { return r.Host, nil }, byUser)
	to := func(path string) []mod { return []mod{target(path)} }
	return section{"Whose request, and for what", []row{
		{name: "another user", steps: twice(nil, []mod{user("43")}), effects: 2, practice: "draft 5: composite key; fiber, celeris, IdempotentAPI: the first user's answer"},
		{name: "another path", steps: twice(nil, to("/refunds")), effects: 2, practice: "Stripe: 400; ArcadeDB, fiber: the first one's answer", why: "keys of one order, on several routes"},
		{name: "another path value", steps: twice(to("/orders/7/pay"), to("/orders/8/pay")), effects: 2, practice: "Solidgate: own scope; Stripe: 400"},
		{name: "another method", steps: twice([]mod{method("PUT")}, []mod{method("PATCH")}), effects: 2, practice: "ePay, Hono: own scope; celeris: replayed"},
		{name: "another method, in `X-HTTP-Method-Override`", steps: twice([]mod{header("X-HTTP-Method-Override", "PATCH")}, []mod{header("X-HTTP-Method-Override", "DELETE")}), effects: 2, practice: "most: one, replayed", why: "the handler sees two methods"},
		{name: "the same method in `X-HTTP-Method-Override`", steps: again([]mod{header("X-HTTP-Method-Override", "PATCH")}, []mod{header("X-HTTP-Method-Override", "patch")}), effects: 1, practice: "most: one"},
		{name: "another host", steps: again(nil, []mod{host("www.shop.test")}), effects: 1, practice: "idemlease: left out, too", why: "names of one service; see the next row"},
		{name: "another host, in the scope", guard: scoped(byHost), steps: twice(nil, []mod{host("other.test")}), effects: 2, practice: "tenants by host"},
		{name: "an absolute URL", steps: again(nil, to("http://shop.test/orders")), effects: 1, practice: "RFC 9112 3.2.2"},
		{name: "another query", steps: other(to("/orders?dry=1"), to("/orders")), effects: 1, practice: "Whop: 400; facility#196: replayed, so a dry run answered for the real one"},
		{name: "the query in another order", steps: again(to("/orders?a=1&b=2"), to("/orders?b=2&a=1")), effects: 1, practice: "Whop: 400", why: "clients build it from maps"},
		{name: "values of one name in another order", steps: other(to("/orders?a=1&a=2"), to("/orders?a=2&a=1")), effects: 1, practice: "Whop: 400"},
		{name: "a query escaped otherwise", steps: again(to("/orders?name=a%20b~"), to("/orders?name=a+b%7e")), effects: 1, practice: "Whop: 400", why: "one query"},
		{name: "a query that does not parse", steps: other(to("/orders?a=%zz&b=1"), to("/orders?a=%zz&b=2")), effects: 1, practice: "compared as it is"},
		{name: "a query parameter without value", steps: again(to("/orders?dry"), to("/orders?dry=")), effects: 1, practice: "net/http reads them alike"},
		{name: "a slash at the end", steps: again(nil, to("/orders/")), effects: 1, practice: "gin, echo, chi's StripSlashes: one route", why: "one key, one order, behind every router"},
		{name: "slashes and dots of a path that is not clean", only: "chi", because: "ServeMux redirects", steps: append(again(nil, to("//orders")), submission(to("/x/../orders")...).gets(replay())), effects: 1, practice: "chi's CleanPath: one route"},
		{name: "upper case in the path", steps: twice(nil, to("/Orders")), effects: 2, practice: "two resources"},
		{name: "a path escaped otherwise", steps: again(to("/orders/%37/pay"), to("/orders/7/pay")), effects: 1, practice: "chi: two; RFC 3986 6.2.2.2: one"},
		{name: "hex digits in lower case", steps: again(to("/orders/a%2Fb/pay"), to("/orders/a%2fb/pay")), effects: 1, practice: "RFC 3986 6.2.2.1"},
		{name: "an escaped slash", steps: twice(to("/orders/a%2Fb/pay"), to("/orders/a/b/pay")), effects: 2, practice: "RFC 3986 2.2: another path"},
		{name: "scope missing", steps: []step{submission(header("X-User-ID")).gets(missing())}, practice: "Truxify#2387: all anonymous users as one", why: "it leaks"},
		{name: "scope sent twice", steps: []step{submission(header("X-User-ID", "42", "43")).gets(invalid())}, practice: "most: the first counts", why: "the application may read the other one"},
		{name: "not signed in", guard: scoped(anonymous), steps: []step{submission().gets(problem(401, "unauthenticated", ""))}, practice: "Whop: key ignored", why: "silently unprotected"},
		{name: "not signed in, `Optional` scope", guard: scoped(keyfunc.Optional(anonymous)), steps: twice(nil, nil), effects: 2, practice: "Whop: key ignored"},
		{name: "one scope for all, `Global`", guard: scoped(keyfunc.Global), steps: again(nil, []mod{user("43")}), effects: 1, practice: "fiber, celeris: by default", why: "has to be asked for by name"},
		{
			name: "scope and key that run together", effects: 2, practice: "devlink#1195: one record",
			steps: twice([]mod{user("a"), key("bc")}, []mod{user("ab"), key("c")}),
		},
		{
			name: "a scope of two parts", guard: scoped(keyfunc.Join(keyfunc.Header("X-Tenant"), byUser)), effects: 2, practice: "joined with a colon: one record",
			steps: twice([]mod{header("X-Tenant", "a:42"), user("7")}, []mod{header("X-Tenant", "a"), user("42:7")}),
		},
		{name: "a scope that is hashed", guard: scoped(keyfunc.Hash(keyfunc.Header("Cookie"))), steps: append(again([]mod{header("Cookie", "session=a")}, []mod{header("Cookie", "session=a")}), submission(header("Cookie", "session=b")).gets(created(2))), effects: 2, practice: "idempo (Ruby): the session cookie"},
		{name: "another token of the same user", steps: again([]mod{header("Authorization", "Bearer a")}, []mod{header("Authorization", "Bearer b")}), effects: 1, practice: "idempo (Ruby): another request", why: "tokens are renewed between two tries"},
		{name: "headers of proxies and tracing", steps: again([]mod{header("X-Request-ID", "1"), header("User-Agent", "a")}, []mod{header("X-Request-ID", "2"), header("Via", "1.1 p")}), effects: 1, practice: "ACP#120: body only"},
		{name: "another `Accept`", steps: again([]mod{header("Accept", "application/json")}, []mod{header("Accept", "text/html")}), effects: 1, practice: "idemlease: headers left out, too", why: "the answer is that of the first"},
	}}
}
