package semantics_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the page instead of comparing it")

const page = "../../docs/semantics.md"

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
		"docs/semantics.md is not what the table says; write it again with: go test ./internal/semantics -run TestPage -update")
}

const preface = `# Semantics, case by case

What a client sends, what it gets, and how often the handler runs: %d cases, most of them from the requirements of the draft of the
[Idempotency-Key header](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/) (revision 07), and from the
tests and bug reports of other libraries. The test that writes this page also executes every row, over the embedded store and over
Redis, behind net/http's mux and behind chi: ` + "`go test ./internal/semantics`" + `.

How to read it:

- *a request* is ` + "`POST /orders`" + ` of user 42 with ` + "`Idempotency-Key: 8e03978e`" + ` and ` + "`{\"sku\":\"tea\"}`" + `. *The same* is
  that request again, except for the differences named.
- The handler answers ` + "`201`" + ` with ` + "`Location: /orders/n`" + `, where n is the number of the run, unless the case is about its answer.
- *replayed* is the first answer again: equal in status, headers, body and framing, marked with ` + "`Idempotent-Replayed: true`" + `, and
  without the headers that are for the first client only.
- A refusal links to the section on what the client should do, and is as [problem types](problems.md) promises.
- *runs* is how often the handler ran in the whole case.
- *elsewhere* is what the draft, an API or a library does, according to its documentation, tests, source or issues; after the
  dash is the reason, where this library differs.

The guard is ` + "`Idempotent`" + ` with default options, its scope the user, unless the section or the case says otherwise.

| | |
|---|---|
`

const sources = `
## Sources

The draft has expired and is not a standard. APIs: Stripe, PayPal, Adyen, Square, Checkout.com, PPRO, Whop, Solidgate, BlindPay, ePay, Qonto, WorldMonitor, ChatVector, by their
documentation. Go: idemlease (repenguin22), idempo (velmie), go-idempotency (faustbrian), celeris, bright-room/idem, fiber, httprate,
Echo Pro. Others: powertools (AWS Lambda), idempo (Ruby, julik), idempotent-request and grape-idempotency (Ruby), hono-idempotency and
idempot-js (JavaScript), express-idempotency, IdempotentAPI and granit (.NET), idempotency4j and arun0009 (Java), RuoYi and RuoYi-Vue-Plus,
Lock4j, pig-mesh (Java), WendellAdriel/laravel-idempotency and Laravel, django-idempotency-key. A name with a number is an issue or a pull request there.
IETF with a number is one of the draft's own repository.
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
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| case | sent | answer | runs | elsewhere |\n|---|---|---|---|---|\n", s.title, s.prose)
		for i := range s.rows {
			b.WriteString(s.rows[i].line())
		}
	}
	b.WriteString(sources)
	return b.String()
}

func anchor(title string) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		case r == ' ':
			return '-'
		}
		return -1
	}, strings.ToLower(title))
	return plain
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
