package semantics_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"

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
	return section{"Whose request, and for what", append([]row{
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
	}, pathRows()...)}
}

func fingerprintSection() section {
	amount := latch.WithFingerprint(keyfunc.JSON("/amount"))
	coffee := body(`{"sku":"coffee"}`)
	canonical := latch.WithFingerprint(keyfunc.CanonicalJSON)
	long := strings.Repeat("x", 10_000)
	const order7 = `{"id":7}`
	return section{"The same key for another request", []row{
		{name: "another body", steps: other(nil, []mod{coffee}), effects: 1, practice: "draft 2.7: 422; Stripe, IdempotentAPI: 400; express-idempotency: 417; fiber: replayed"},
		{name: "another body, while the first runs", steps: []step{submission().begins(), submission(coffee).gets(reused()), finish(created(1))}, effects: 1, practice: "idempot-js#183: 422; idemlease: 409", why: "waiting would not help it"},
		{name: "another body, then the right one", steps: []step{submission().gets(created(1)), submission(coffee).gets(reused()), submission().gets(replay())}, effects: 1, practice: "powertools-ts#5705: hash lost"},
		{name: "another body, in another process", steps: []step{submission().gets(created(1)), submission(coffee, elsewhere()).gets(reused())}, effects: 1, practice: "draft 2.7"},
		{name: "another body after a failure", handler: failing(500), steps: []step{submission().gets(fresh(500)), submission(coffee).gets(created(2))}, effects: 2, practice: "Stripe v1: 500 kept", why: "neither a failure nor its request is kept"},
		{name: "members in another order", steps: other([]mod{body(`{"a":1,"b":2}`)}, []mod{body(`{"b":2,"a":1}`)}), effects: 1, practice: "powertools#638, go-idempotency: one request", why: "a retry sends the same bytes; see `WithFingerprint`"},
		{name: "another spacing", steps: other([]mod{body(`{"a":1}`)}, []mod{body(`{"a": 1}`)}), effects: 1, practice: "go-idempotency: one request (canonical JSON)", why: "a retry sends the same bytes"},
		{name: "a newline more", steps: other([]mod{body(`{"a":1}`)}, []mod{body("{\"a\":1}\n")}), effects: 1, practice: "most: 422"},
		{name: "one byte of many", steps: other([]mod{as("with 10,000 bytes", body(long))}, []mod{as("with another last byte", body(long[1:]+"y"))}), effects: 1, practice: "most: 422"},
		{name: "no body, and an empty one", steps: again([]mod{noBody()}, []mod{as("with `Content-Length: 0`", body(""))}), effects: 1, practice: "the same content"},
		{name: "no body, then one", steps: other([]mod{noBody()}, nil), effects: 1, practice: "IdempotentAPI#58: hash of nothing"},
		{name: "in chunks, and with a length", steps: again(nil, []mod{chunked()}), effects: 1, practice: "the same content"},
		{name: "compressed anew", steps: append(again([]mod{packed("gzip, stored", gzip.NoCompression, order7)}, []mod{packed("gzip, best", gzip.BestCompression, order7)}), submission(body(order7)).gets(replay())), effects: 1, practice: "most: 422", why: "one content"},
		{name: "compressed, another content", steps: other([]mod{packed("gzip", gzip.BestCompression, order7)}, []mod{packed("another gzip", gzip.BestCompression, `{"id":8}`)}), effects: 1, practice: "most: 422"},
		{name: "compressed, over the limit", guard: idempotent(latch.WithBodyLimits(10_000, 10_000)), steps: []step{submission(packed("gzip of 1 MiB, in 1 kB", gzip.BestCompression, strings.Repeat("x", 1<<20))).gets(problem(413, "body-too-large", ""))}, practice: "a bomb", why: "the limit counts for the content, too"},
		{name: "another `Content-Type`", steps: again(nil, []mod{header("Content-Type", "application/json; charset=utf-8")}), effects: 1, practice: "idemlease: left out, too", why: "clients change the charset"},
		{name: "parts of the body, equal", guard: idempotent(amount), steps: again([]mod{body(`{"amount":5,"sent":1}`)}, []mod{body(`{"amount":5,"sent":2}`)}), effects: 1, practice: "draft 2.4: selected elements; powertools: JMESPath"},
		{name: "parts of the body, spelled otherwise", guard: idempotent(amount), steps: again([]mod{body(`{"amount":5}`)}, []mod{body(`{ "amount": "5" }`)}), effects: 1, practice: "most: two", why: "42 and its text are one key"},
		{name: "parts of the body, different", guard: idempotent(amount), steps: other([]mod{body(`{"amount":5}`)}, []mod{body(`{"amount":6}`)}), effects: 1, practice: "powertools: validation error"},
		{name: "parts of the body, missing", guard: idempotent(amount), steps: []step{submission(body(`{}`)).gets(missing())}, practice: "draft 2.4 leaves it open", why: "nothing to compare is a mistake"},
		{name: "parts of the body, `Optional` and missing", guard: idempotent(latch.WithFingerprint(keyfunc.Optional(keyfunc.JSON("/amount")))), steps: other([]mod{body(`{"a":1}`)}, []mod{body(`{"a":2}`)}), effects: 1, practice: "draft 2.4 leaves it open", why: "then all of it is compared"},
		{
			name: "several parts", guard: idempotent(latch.WithFingerprint(keyfunc.Join(keyfunc.JSON("/a"), keyfunc.JSON("/b")))), effects: 1, practice: "draft 2.4",
			steps: []step{submission(body(`{"a":"1","b":"23"}`)).gets(created(1)), submission(body(`{"a":"12","b":"3"}`)).gets(reused()), submission(body(`{"b":"23","a":"1","c":0}`)).gets(replay())},
		},
		{name: "canonical JSON, spelled otherwise", guard: idempotent(canonical), steps: again([]mod{body(`{"a":1,"b":"x"}`)}, []mod{body(`{ "b": "\u0078", "a": 1.0 }`)}), effects: 1, practice: "ACP: equal; AdCP: RFC 8785"},
		{name: "canonical JSON, null and absent", guard: idempotent(canonical), steps: other([]mod{body(`{"a":1}`)}, []mod{body(`{"a":1,"b":null}`)}), effects: 1, practice: "ACP: different"},
		{name: "canonical JSON, more digits than a float64 holds", guard: idempotent(canonical), steps: other([]mod{body(`{"a":9007199254740993}`)}, []mod{body(`{"a":9007199254740992}`)}), effects: 1, practice: "RFC 8785: rounded, one request", why: "a handler may read all digits"},
		{name: "canonical JSON, a member twice", guard: idempotent(canonical), steps: []step{submission(body(`{"a":1,"a":1}`)).gets(invalid())}, practice: "RFC 8785: refused"},
		{name: "nothing compared", guard: idempotent(latch.WithFingerprint(keyfunc.Global)), steps: again(nil, []mod{coffee}), effects: 1, practice: "Qonto, fiber, celeris: by default", why: "has to be asked for by name"},
	}}
}

// packed compresses a body.
func packed(words string, level int, content string) mod {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, level) // the level is valid
	_, _ = io.WriteString(z, content)
	_ = z.Close()
	m := body(b.String())
	return mod{"as " + words, func(r *request) { m.apply(r); r.set("Content-Encoding", "gzip") }}
}

// multi is a multipart form with one field and one file.
func multi(boundary, field, file, content string) mod {
	lines := []string{
		"--" + boundary, `Content-Disposition: form-data; name="once"`, "", field,
		"--" + boundary, `Content-Disposition: form-data; name="photo"; filename="` + file + `"`, "Content-Type: image/png", "", content,
		"--" + boundary + "--", "",
	}
	m := typed("multipart/form-data; boundary="+boundary, strings.Join(lines, "\r\n"))
	m.words = "as multipart (boundary `" + boundary + "`, once=" + field + ", file `" + file + "`: " + content + ")"
	return m
}

func formSection() section {
	byForm, byJSON := keyedBy(keyfunc.Form("once")), keyedBy(keyfunc.JSON("/id"))
	refusedJSON := func(s string, w want) []step { return []step{submission(body(s)).gets(w)} }
	broken := "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx"
	return section{"Forms, files and keys in the body", append([]row{
		{name: "a form again", steps: again([]mod{form("a=1&b=2")}, []mod{form("a=1&b=2")}), effects: 1, practice: "Stripe v1"},
		{name: "fields in another order", steps: other([]mod{form("a=1&b=2")}, []mod{form("b=2&a=1")}), effects: 1, practice: "Stripe v1 compares parameters", why: "a retry sends the same bytes"},
		{name: "another boundary", steps: again([]mod{multi("one", "a", "x.png", "pixels")}, []mod{multi("two", "a", "x.png", "pixels")}), effects: 1, practice: "BlindPay: key ignored; most: 422", why: "browsers choose a new one each time"},
		{name: "another file", steps: other([]mod{multi("one", "a", "x.png", "pixels")}, []mod{multi("two", "a", "x.png", "pixelz")}), effects: 1, practice: "ChatVector: by the content"},
		{name: "another file name", steps: other([]mod{multi("one", "a", "x.png", "pixels")}, []mod{multi("one", "a", "y.png", "pixels")}), effects: 1, practice: "ChatVector: compared"},
		{name: "another field in addition to the file", steps: other([]mod{multi("one", "a", "x.png", "pixels")}, []mod{multi("one", "b", "x.png", "pixels")}), effects: 1, practice: "most: 422"},
		{name: "multipart that is cut off", steps: again([]mod{as("a broken multipart body", typed("multipart/form-data; boundary=b", broken))}, []mod{as("with the same bytes", typed("multipart/form-data; boundary=b", broken))}), effects: 1, practice: "compared as it is; the handler refuses it"},
		{name: "a key in a field", guard: byForm, steps: append(again([]mod{form("once=a&sku=tea")}, []mod{form("once=a&sku=tea")}), submission(form("once=b&sku=tea")).gets(created(2))), effects: 2, practice: "Struts, TERASOLUNA: one-time token"},
		{name: "a key in a field, another form", guard: byForm, steps: other([]mod{form("once=a&sku=tea")}, []mod{form("once=a&sku=coffee")}), effects: 1, practice: "Struts: refused as used"},
		{name: "a key in a field of multipart", guard: byForm, steps: again([]mod{multi("one", "a", "x.png", "pixels")}, []mod{multi("two", "a", "x.png", "pixels")}), effects: 1, practice: "Struts"},
		{name: "a key in a field, missing", guard: byForm, steps: []step{submission(form("sku=tea")).gets(missing())}, practice: "Struts: refused"},
		{name: "a key in a field, twice", guard: byForm, steps: []step{submission(form("once=a&once=b")).gets(invalid())}, practice: "most: the first counts", why: "the handler may read the other one"},
		{name: "a key in the query instead of the field", guard: byForm, steps: []step{submission(target("/orders?once=a"), form("sku=tea")).gets(missing())}, practice: "Rails, PHP: merged", why: "a link could choose it"},
		{name: "the member twice", guard: byJSON, steps: refusedJSON(`{"id":1,"id":2}`, invalid()), practice: "most: the last counts", why: "the handler may read the other one"},
		{name: "the member in another case", guard: byJSON, steps: refusedJSON(`{"ID":1}`, invalid()), practice: "encoding/json: the same member"},
		{name: "a number and its text", guard: keyedBy(keyfunc.JSON("/id"), latch.WithFingerprint(keyfunc.Global)), steps: again([]mod{body(`{"id":42}`)}, []mod{body(`{"id":"42"}`)}), effects: 1, practice: "most: two keys", why: "clients differ"},
		{name: "numbers beyond a float", guard: byJSON, steps: twice([]mod{body(`{"id":9007199254740992}`)}, []mod{body(`{"id":9007199254740993}`)}), effects: 2, practice: "JavaScript: one key", why: "every digit counts"},
		{name: "a fraction", guard: byJSON, steps: refusedJSON(`{"id":1.5}`, invalid()), practice: "most: its text", why: "1.50 would be another"},
		{name: "null", guard: byJSON, steps: refusedJSON(`{"id":null}`, invalid()), practice: "a hash of null", why: "one bucket for all"},
		{name: "an empty text", guard: byJSON, steps: refusedJSON(`{"id":""}`, missing()), practice: "a hash of nothing", why: "one bucket for all"},
		{name: "the member missing", guard: byJSON, steps: refusedJSON(`{}`, missing()), practice: "powertools: runs, or raise_on_no_idempotency_key", why: "has to be asked for by name (`Optional`)"},
		{name: "the member missing, `Optional`", guard: keyedBy(keyfunc.Optional(keyfunc.JSON("/id"))), steps: twice(nil, nil), effects: 2, practice: "powertools: runs"},
		{name: "no JSON at all", guard: byJSON, steps: refusedJSON(`id=1`, invalid()), practice: "usual"},
		{name: "two JSON values", guard: byJSON, steps: refusedJSON(`{"id":1}{"id":2}`, invalid()), practice: "json.Decoder: the first"},
	}, outsideRows()...)}
}
