// Package keyfunc decides which requests are the same. A [Func] turns a request into a key: the
// middleware locks that key, or keeps an answer under it.
//
//	latch.Lock(l, "user", keyfunc.Header("X-User-ID"))
//	latch.Lock(l, "order", keyfunc.Join(keyfunc.Context(auth.Tenant), keyfunc.PathValue("id")))
//
// A [Set] turns a request into several keys, which are locked together:
//
//	latch.LockAll(l, "item", keyfunc.Each("/items/*/sku"))
//
// # What is guaranteed
//
// Two requests have the same key only if the values of the key are the same: [Join] is injective,
// numbers keep all their digits, nothing is cut off. In the other direction, a client cannot avoid
// a lock by writing one value in two ways, as far as these ways are known. A value that the handler
// could read differently is refused with 400:
//
//   - a header or parameter that is sent twice, or in the query and in a form;
//   - a JSON member that is there twice or in another case;
//   - JSON with the Content-Type of a form;
//   - a form field that is also a file.
//
// Two valid spellings of one value are one key ("%37" and "7" in a path, 42 and "42" in JSON).
//
// The functions do not know the meaning of values: "Ann" and "ann", "7" and "07", or two
// Unicode spellings of one letter are different keys. If they are the same to your handler,
// bring them into one form in your own Func. A value has 1 to 1024 bytes and no control
// characters. There are two exceptions: the value of [CanonicalJSON] is as long as the body, and
// a result of [Join] begins with a control character, which marks it.
//
// # Read the same value
//
// The handler must read the value from the same place as the key function:
//
//   - for [PathValue], with r.PathValue;
//   - for [Query], with r.URL.Query().Get or r.FormValue;
//   - for [Form], with r.PostFormValue or r.FormValue;
//   - for [JSON], by decoding the body as JSON.
//
// If the Content-Encoding of a body is gzip or deflate, the functions decompress a copy, and the
// handler gets the body as the client sent it. With another coding, or with several, they read the
// body as it is: refuse such requests outside if the handler decodes them.
//
// A binder takes values from several places, and the client chooses which one wins. echo's Bind
// overwrites the path value with a member of the body. gin's ShouldBind and echo's Bind parse
// the body as JSON, XML or a form, whichever its Content-Type names. [Form] and [JSON] refuse a
// value that the two binders would read elsewhere under the same name. They cannot see a struct
// tag with another name (json:"order_id" form:"order"): bind JSON with gin's ShouldBindJSON.
// [Query] and [PathValue] do not look into a body of JSON or XML, or a multipart form: read
// their values yourself (c.Query, c.QueryParam, c.Param).
//
// # Whom to trust
//
// A key is as trustworthy as its source. [Context] is best: your own authentication sets it.
// [Header] is the client's choice, unless your own gateway sets the header on every request
// and replaces the client's value: a client that can choose the header chooses whose lock it
// takes, and escapes its own. [PathValue], [Query], [Form] and [JSON] are always the client's
// choice. That is fine for the object of the work ("order 7"), because the handler works on
// the same value. It is not fine for the identity of a user, and least of all for the scope of
// stored answers: one client would get the answer of another one.
//
// # What a key must contain
//
// Only the key, and the scope of stored answers, distinguish requests:
//
//   - Tenants. Neither a lock's key nor a stored answer's scope contains the host. If user 42 of
//     one tenant is not user 42 of another, use both:
//     Join(Context(tenant.ID), Context(auth.UserID)).
//   - Headers. Requests with one idempotency key are compared by query and body, not by
//     headers. A header that changes the content of the request belongs in
//     middleware.WithFingerprint, and a header that changes its owner in the scope.
//   - Permissions. A repeat gets the stored answer, and only middleware outside the guard runs
//     again: authorise there.
//
// # What a key shows
//
// A key, and the scope of a stored answer, can be read in the store, in the console and in
// logs for as long as they are kept, 24 hours for an answer. [Header] hashes Authorization,
// Proxy-Authorization and Cookie. Hash every other secret: Hash(Header("X-Api-Key")).
//
// # Missing or skip
//
// A request without the key is refused: [ErrMissing], 400, or 401 from [Context]. An empty key,
// also from your own functions, is refused in the same way. So no request runs unguarded by
// accident: [Optional] turns a missing key into [ErrSkip], and your own Func may return ErrSkip.
// One key for all callers has to be stated, too: [Global].
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
// Return [ErrMissing] if there is no key, and an [*Error] for your own status. Any other error is
// a failure of your server, 500. Do not return a value in which the client can put control
// characters: a key that starts with the byte 0x1f counts as the result of [Join]. Do not read
// the body, or the handler will find it empty. Build on [JSON] and [Form], which read the body
// once for all functions of a request and put it back.
//
// # The name
//
// github.com/MicahParks/keyfunc, which users of JSON Web Tokens import, has the
// same package name. If a file needs both, rename one:
//
//	import latchkey "github.com/httplatch/httplatch/keyfunc"
package keyfunc
