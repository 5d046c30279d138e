package semantics_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"

	"github.com/httplatch/httplatch/keyfunc"
	latch "github.com/httplatch/httplatch/middleware"
)

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
		{name: "another body after a failure", handler: func(c *run) {
			if c.n == 1 {
				c.WriteHeader(500)
				return
			}
			order(c)
		}, steps: []step{submission().gets(fresh(500)), submission(coffee).gets(created(2))}, effects: 2, practice: "Stripe v1: 500 kept", why: "neither a failure nor its request is kept"},
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
	return section{"Forms, files and keys in the body", []row{
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
	}}
}
