// Package form makes a form in a browser one submission, however often it is sent: a hidden field
// has the key, and a script keeps the key until there is an answer.
//
//	mux.Handle("GET /latch.js", form.Script())
//	mux.Handle("POST /orders", latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.Form("once"))(orders))
//
// In the page, a template of html/template with {{.Field}} from [Field] and {{.Integrity}} from
// [Integrity]:
//
//	<script src="/latch.js?v={{.Integrity}}" integrity="{{.Integrity}}" defer></script>
//	...
//	<form method="post" action="/orders" data-latch>{{.Field}}
//
// Without JavaScript, the field alone makes a double click one submission. With the script, a
// reload, the back button, a copy of the tab, and a retry after a lost connection are the same
// submission, too: the script keeps the key of the form, as long as the content of the form is
// the same and there was no final answer. The guard reports a final answer in a cookie, because
// the answer may lead to another site. Guarantees, cases and limits:
// https://github.com/httplatch/httplatch/blob/main/docs/forms.md#with-the-script
//
// The guard of the handler is middleware.Idempotent over keyfunc.Form("once"). A form that is sent
// again gets the first answer as soon as there is one.
//
// The package imports the standard library only.
package form
