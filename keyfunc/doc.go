// Package keyfunc says which requests are the same: a [Func] turns a request
// into the key that the middleware locks, or remembers an answer under.
//
//	latch.Lock(l, "user", keyfunc.Header("X-User-ID"))
//	latch.Lock(l, "order", keyfunc.Join(keyfunc.Context(auth.Tenant), keyfunc.PathValue("id")))
//
// # What is guaranteed
//
// Two requests have the same key only if what the key is made of is the same:
// [Join] is injective, numbers keep all their digits, nothing is cut off. In
// the other direction, a client cannot get past a lock by writing one value in
// two ways, as far as the way is known: what could be read differently by
// the handler is refused with 400 (a header or parameter that is sent twice, or in the
// query and in a form, a JSON member that is there twice or in another case, JSON whose
// Content-Type is that of a form, a form field that is also a file), and where two
// spellings are both fine, they are one key ("%37" and "7" in a path, 42 and "42" in JSON).
//
// The functions do not know what values mean to you: "Ann" and "ann",
// "7" and "07", or two Unicode spellings of one letter are different keys. If
// your handler takes them for the same, bring them into one form in a Func of
// your own. All values have 1 to 1024 bytes and no control characters.
//
// # Read the same value
//
// The handler has to take the value from where its key function does: after [PathValue]
// with r.PathValue, after [Query] with r.URL.Query().Get or r.FormValue, after [Form] with
// r.PostFormValue or r.FormValue, after [JSON] by decoding the body as JSON.
//
// A binder takes values from several places, and the client chooses which one wins. echo's
// Bind overwrites the path value with a member of the body. gin's ShouldBind, and echo's
// Bind, take a body of JSON, XML or a form by its Content-Type. Form and JSON refuse what
// those two read in another place under the same name, but do not know a tag of another
// name (json:"order_id" form:"order"): bind JSON with gin's ShouldBindJSON. Query and
// PathValue do not look at a body of JSON or XML, or a multipart form: read their values
// yourself (c.Query, c.QueryParam, c.Param).
//
// # Whom to trust
//
// A key is as trustworthy as its source. [Context] is set by your own
// authentication and is the best there is. [Header] is what the client sent
// unless your own gateway sets the header on every request and replaces what
// was there; a client that can choose the header chooses whose lock it takes,
// and escapes its own. [PathValue], [Query], [Form] and [JSON] are the client's
// choice by nature. That is fine for the thing that is worked on ("order 7"),
// because the handler works on that same value. It is not fine for the identity of
// a user, and least of all for the scope of stored answers: one client would be
// given another one's.
//
// # What a key has to say itself
//
// What the key, or the scope of stored answers, does not say is not looked at:
//
//   - Tenants. The host is no part of a lock's key, nor of a stored answer's scope. Where
//     user 42 of one tenant is not user 42 of another, say both:
//     Join(Context(tenant.ID), Context(auth.UserID)).
//   - Headers. Requests with one idempotency key are compared by query and body, not by
//     their headers. A header that changes what is asked for belongs in
//     middleware.WithFingerprint, and one that changes whose request it is into the scope.
//   - Permissions. A repeat gets the stored answer, and only what is mounted outside the
//     guard is asked again: authorise there.
//
// # What a key shows
//
// A key, and the scope of a stored answer, can be read in the store, in the console and in
// logs for as long as they are kept, 24 hours for an answer. [Header] hashes Authorization,
// Proxy-Authorization and Cookie. Hash every other secret: Hash(Header("X-Api-Key")).
//
// # Missing or skip
//
// A request without the key is refused: [ErrMissing], 400, or 401 from
// [Context]. So is an empty key, from your own functions too. Nothing runs
// unguarded by accident. What is meant to run unguarded is named: [Optional]
// turns a missing key into [ErrSkip], and your own Func may return ErrSkip. One
// bucket for all callers has a name as well: [Global].
//
// # Writing your own
//
// A Func is a plain function:
//
//	func session(r *http.Request) (string, error) {
//		c, err := r.Cookie("session")
//		if err != nil {
//			return "", keyfunc.ErrMissing
//		}
//		return c.Value, nil
//	}
//
//	latch.Lock(l, "session", keyfunc.Hash(session))
//
// Return [ErrMissing] if there is no key, and an [*Error] for a status of your
// own; any other error is a failure of your server, 500. Do not return what the
// client can fill with control characters: a key that starts with the byte 0x1f
// counts as a joined one. Do not read the body, or the handler will find it
// empty; build on [JSON] and [Form], which read it once for all functions of a request
// and put it back.
//
// # The name
//
// github.com/MicahParks/keyfunc, which users of JSON Web Tokens import, has the
// same package name. Where a file needs both, rename one:
//
//	import latchkey "github.com/httplatch/httplatch/keyfunc"
package keyfunc
