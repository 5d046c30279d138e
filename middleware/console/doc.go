// Package console is a page for operators. It answers "why can't user 42 order", and can free the
// key. In plain words, it shows which process has which key and for how much longer, which
// requests have an unknown outcome, which entries are being cleaned up, and which faults ended
// lately. Mount it behind your own authentication, under any path, for all methods:
//
//	mux.Handle("/admin/locks", operatorsOnly(console.New(locker, console.WithName("orders, production"))))
//
// A visitor sees keys in plain text, which may name users, and can let work run twice. So the page
// shows a warning to a request from another machine without a sign of authentication, and the
// first such request is logged as an error to the Locker's logger. Signs are Authorization, a
// cookie, a client certificate, and headers of an authenticating proxy such as Remote-User. Your
// own middleware may set such a header, too.
//
// # Requests
//
// The answer is HTML if Accept names text/html, and otherwise JSON.
//
//	GET ?q=TEXT&limit=N&after=CURSOR   entries with TEXT in their key, and records of requests with TEXT in their label, path
//	                                   or guard, about N of them (50, at most 200); next is the cursor of the next page;
//	                                   answers=1 shows stored answers too
//	GET ?unfinished=1                  requests that were begun and not finished, with their steps: see [lock.Locker.Unfinished]
//	GET ?key=KEY                       one entry; as JSON 404 if the key is free
//	GET ?scope=S&method=M&path=P&id=K  the record of the request of S to a route behind [latch.Idempotent] with the Idempotency-Key K
//	DELETE ?key=KEY&token=TOKEN        frees KEY: 204; 404 if there is no entry, 409 if it has another token by now
//	DELETE ?label=LABEL                erases the stored answers of LABEL, for 800 ms, and reports how many; next
//	                                   is the cursor (after=CURSOR) for the next request: see [Erase];
//	                                   label=A&label=B are the parts of a joined scope
//	POST                               the two DELETE requests, as the forms of the page send them
//
// To free a key is a compare-and-delete with the token on the page. So it removes exactly the entry
// that the operator has seen, never a later one, and by a form no answer that came since. The operator
// has to type the key or its last part. Requests that a browser sends on behalf of another site are refused
// ([http.CrossOriginProtection]). They would also need the token, which no other site can read.
// There are no scripts and no cookies.
//
// # Limits
//
// A request reads about as many entries as it shows. With q, or without answers, it reads
// entries for 800 ms at most, and answers with the matching ones and a cursor. The store has
// to have pages for that ([lock.Inspector]). From any other store, each page reads the whole list.
// If the store cannot list, the console finds whole keys, and shows the keys that this process
// holds. Of other processes, the console knows only their entries in the store.
package console
