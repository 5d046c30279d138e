package semantics_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the page instead of comparing it")

const page = "../../docs/evidence/semantics.md"

// TestPage: the page says what the rows check.
func TestPage(t *testing.T) {
	t.Parallel()
	got := render(table())
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, string(want), got,
		page+" is not what the table says; write it again with: go test ./internal/semantics -run TestPage -update")
}

const preface = "Written by `go test ./internal/semantics -run TestPage -update`; TestTable executes every row." + `

# Semantics: %d cases

Behind net/http's mux and behind chi, over the embedded store and over Redis. The rules are in [semantics](../semantics.md).

- *a request*: ` + "`POST /orders`" + ` of user 42 with ` + "`Idempotency-Key: 8e03978e`" + ` and ` + "`{\"sku\":\"tea\"}`" + `. *The same*: that request again,
  except for the differences named.
- The guard is ` + "`Idempotent`" + ` with default options, its scope the user, unless the row names another. A request to ` + "`Dedupe`" + ` has no key.
- The handler answers ` + "`201`" + ` with ` + "`Location: /orders/n`" + `, n the number of the run, unless the row is about its answer.
- *replayed*: the first answer again, equal in status, headers, body and framing, with ` + "`Idempotent-Replayed: true`" + `.
- *runs*: how often the handler ran in the whole row. Behind a gateway: how often it sent the request on; in later runs the service has the order.
- *elsewhere*: what the draft, an API or a library does, by its documentation, tests, source or issues; after the dash, why this one differs.
- The rows in a transaction run over a database in memory.

| | |
|---|---|
`

const sources = `
## Sources

[The draft](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/) (revision 07) has expired and is not a standard.
APIs, by their documentation: Stripe, PayPal, Adyen, Square, Checkout.com, PPRO, Whop, Solidgate, BlindPay, ePay, Qonto, WorldMonitor, ChatVector.
Go: idemlease (repenguin22), idempo (velmie), go-idempotency (faustbrian), celeris, bright-room/idem, fiber, httprate,
Echo Pro. Others: powertools (AWS Lambda), idempo (Ruby, julik), idempotent-request and grape-idempotency (Ruby), hono-idempotency and
idempot-js (JavaScript), express-idempotency, IdempotentAPI and granit (.NET), idempotency4j and arun0009 (Java), RuoYi and RuoYi-Vue-Plus,
Lock4j, pig-mesh (Java), WendellAdriel/laravel-idempotency and Laravel, django-idempotency-key. A name with a number is an issue or a pull request there;
IETF with a number, one of the draft's own repository.
`

// render is the page of all sections.
func render(all []section) string {
	var b strings.Builder
	count := 0
	for _, s := range all {
		count += len(s.rows)
	}
	fmt.Fprintf(&b, preface, count)
	for _, s := range all {
		fmt.Fprintf(&b, "| [%s](#%s) | %d |\n", s.title, anchor(s.title), len(s.rows))
	}
	for _, s := range all {
		fmt.Fprintf(&b, "\n## %s\n\n| case | sent | answer | runs | elsewhere |\n|---|---|---|---|---|\n", s.title)
		for i := range s.rows {
			b.WriteString(s.rows[i].line())
		}
	}
	b.WriteString(sources)
	return b.String()
}

func anchor(title string) string {
	return strings.ReplaceAll(regexp.MustCompile("[^a-z0-9_ -]").ReplaceAllString(strings.ToLower(title), ""), " ", "-")
}

// line is the row as one line of a table.
func (r *row) line() string {
	sent, got := make([]string, 0, len(r.steps)), make([]string, 0, len(r.steps))
	first := true
	for i := range r.steps {
		s, a := r.steps[i].words(first)
		first = first && r.steps[i].req == nil
		if a == "" {
			a = "–"
		}
		sent, got = append(sent, s), append(got, a)
	}
	elsewhere := r.practice
	if r.why != "" {
		elsewhere += " – " + r.why
	}
	name := r.name
	if r.only != "" {
		name += " (" + r.only + " alone: " + r.because + ")"
	}
	return "| " + strings.Join([]string{name, strings.Join(sent, "<br>"), strings.Join(got, "<br>"), fmt.Sprint(r.effects), elsewhere}, " | ") + " |\n"
}
