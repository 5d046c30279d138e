package semantics_test

import (
	"github.com/httplatch/httplatch/keyfunc"
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
