// Package console is a page for the people who run the service: who has which key and
// for how much longer, what is of unknown outcome, what is being cleaned up, and
// what was recovered lately, in plain words. It answers "why can't user 42
// order", and frees the key. Mount it behind your own authentication, under any
// path, for all methods:
//
//	mux.Handle("/admin/locks", operatorsOnly(console.New(locker)))
//
// A visitor who reaches it sees keys as they are, users among them, and can let
// work run twice. Requests that come from another machine with no sign of
// authentication (no Authorization, no cookie, no client certificate, no header
// of an authenticating proxy such as Remote-User, which your own middleware may
// set too) are served, but get a warning on the page, and the first one is
// logged as an error to the Locker's logger.
//
// # Requests
//
// The answer is HTML if Accept names text/html, else JSON.
//
//	GET ?q=TEXT&limit=N&after=CURSOR   entries whose key has TEXT in it, and records of requests whose label, path or guard
//	                                   has, about N of them (50, at most 200); next is the cursor of those that follow;
//	                                   answers=1 shows stored answers too
//	GET ?key=KEY                       one entry; as JSON 404 if the key is free
//	GET ?scope=S&method=M&path=P&id=K  the record of what S sent to a route behind [latch.Idempotent] with the Idempotency-Key K
//	DELETE ?key=KEY&token=TOKEN        frees it: 204; 404 if it is gone, 409 if it has another token by now
//	DELETE ?label=LABEL                erases the stored answers of LABEL, for 800 ms, and says how many; next
//	                                   is the cursor (after=CURSOR) of where to go on: see [Erase];
//	                                   label=A&label=B are the parts of a joined scope
//	POST                               the same two, from the page's forms
//
// Freeing is a compare-and-delete with the token that was shown, so that what an
// operator looked at is what goes, never its successor. The form asks to type the
// key or its last part. Requests that a browser sends on behalf of another site
// are refused ([http.CrossOriginProtection]), and would have to know the token,
// which no other site can read. There are no scripts and no cookies.
//
// # Limits
//
// A request reads about as many entries as it shows. One with q, or without answers,
// looks through entries for 800 ms at most, and answers with what it has found and a
// cursor: see [lock.Inspector] for the method that a store needs for that. With one that
// cannot list, whole keys can be looked up, and the console shows what this process
// holds. Of other processes it knows only what is in the store.
package console
