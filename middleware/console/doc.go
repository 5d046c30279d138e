// Package console is a page for operators. It shows which process has which key and for how
// much longer, which requests have an unknown outcome, which entries are being cleaned up, and
// which were recovered lately, in plain words. It answers "why can't user 42 order", and
// frees the key. Mount it behind your own authentication, under any path, for all methods:
//
//	mux.Handle("/admin/locks", operatorsOnly(console.New(locker)))
//
// A visitor sees keys in plain text, users among them, and can let work run twice. So a
// request from another machine without a sign of authentication gets a warning on the page,
// and the first one is logged as an error to the Locker's logger. Signs are Authorization, a
// cookie, a client certificate, or a header of an authenticating proxy such as Remote-User,
// which your own middleware may set, too.
//
// # Requests
//
// The answer is HTML if Accept names text/html, else JSON.
//
//	GET ?q=TEXT&limit=N&after=CURSOR   entries whose key has TEXT in it, and records of requests whose label, path or guard
//	                                   has, about N of them (50, at most 200); next is the cursor of the next page;
//	                                   answers=1 shows stored answers too
//	GET ?key=KEY                       one entry; as JSON 404 if the key is free
//	GET ?scope=S&method=M&path=P&id=K  the record of the request of S to a route behind [latch.Idempotent] with the Idempotency-Key K
//	DELETE ?key=KEY&token=TOKEN        frees it: 204; 404 if it is gone, 409 if it has another token by now
//	DELETE ?label=LABEL                erases the stored answers of LABEL, for 800 ms, and says how many; next
//	                                   is the cursor (after=CURSOR) to go on from: see [Erase];
//	                                   label=A&label=B are the parts of a joined scope
//	POST                               the same two, from the page's forms
//
// Freeing is a compare-and-delete with the token on the page, so it removes exactly the entry
// that the operator has seen, never its successor. The form asks to type the key or its last
// part. Requests that a browser sends on behalf of another site are refused
// ([http.CrossOriginProtection]), and would have to know the token, which no other site can
// read. There are no scripts and no cookies.
//
// # Limits
//
// A request reads about as many entries as it shows. With q, or without answers, it reads
// entries for 800 ms at most, and answers with the matching ones and a cursor. The store has
// to be a [lock.Pager] for that: the whole list of any other [lock.Inspector] is read for each
// page. If the store cannot list, whole keys can be looked up, and the console shows the keys
// that this process holds. Of other processes it knows only their entries in the store.
package console
