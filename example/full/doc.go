// Command full is an order desk that takes each submission once: one order per user at a
// time, one payment per order at a time. It is a complete server to try httplatch with, on its
// own, over Redis, over PostgreSQL, over MySQL or over a file of SQLite:
//
//	go run ./example/full
//	go run ./example/full -addr :8081 -redis redis://localhost:6379
//	go run ./example/full -redis redis://a:6379 -redis redis://b:6379 -redis redis://c:6379
//	go run ./example/full -postgres postgres://desk@localhost/desk
//	go run ./example/full -mysql 'desk@tcp(localhost:3306)/desk'
//	go run ./example/full -sqlite desk.db
//
// Then open http://localhost:8080, or submit twice at once:
//
//	curl -i -H 'X-User-ID: 42' -d '{"sku":"tea","quantity":1}' localhost:8080/orders
//
// Every flag can be given in the environment: LATCH_ADDR for -addr. LATCH_REDIS
// may name several URLs, with blanks between them.
//
// # Routes
//
//	GET    /                    a page that plays a double click and a lost packet, and has a form to double-click on
//	POST   /try                 the form's order, behind the guard that the form names
//	GET    /try?user=U          how long the naive guard still keeps a user out; with &burst=B also the orders of one burst of clicks
//	GET    /assets/...          files that the page loads
//	POST   /orders              places an order; locked by X-User-ID, and idempotent if there is an Idempotency-Key
//	POST   /orders?later=1      accepts one with 202, with an Idempotency-Key; a worker places it, and repeats get the final answer then
//	POST   /carts               places an order for each item; locked by X-User-ID, the coupon and the items, all or none
//	POST   /exports             the orders of X-User-ID; three at once for each
//	GET    /orders?user=U       the orders that exist
//	GET    /orders/{id}         one of them
//	POST   /orders/{id}/pay     pays one; locked by the order, with an Idempotency-Key
//	GET    /healthz             the process lives
//	GET    /readyz              it can take orders: the store takes locks, no shutdown
//	GET    /metrics             for Prometheus
//	GET    /locks               what is held, abandoned or cooling down, as JSON; a browser is sent to /console
//	DELETE /locks?key=K&token=T frees one of them, if it still has that token
//	GET    /console             the page for operators: who has a key and why, and a form to free it
//
// To show failures, POST /orders obeys four headers. "X-Work: 300ms" sets how long the order
// takes, as it does for carts and exports. The others say what the handler does once the order
// exists, in this order: "X-Commit: 1" calls lock.Commit, so that the order is never placed
// again; "X-Linger: 3s" goes on for that time, even if the lease is lost; "X-Fail" is "500",
// "panic" or "hang".
//
// # Policies
//
// With -policies FILE the guards come from a file, and -cooldown and -abandoned
// are not used. policies.json describes the guards that the desk has without a
// file:
//
//	go run ./example/full -policies example/full/policies.json
//
// The page has guards of its own, which no file changes.
//
// # Several masters
//
// With three or more -redis of independent masters, orders are locked in a majority
// of them. Such a quorum keeps no answers: a request with an Idempotency-Key, and a
// payment, is refused with 501. One -redis serves both; it may be a Cluster, or
// behind Sentinel.
//
// # PostgreSQL
//
// With -postgres the orders are rows of a table, which all desks of that database list,
// and the locks and answers are in the same database. A request with an Idempotency-Key,
// and a payment, runs in a transaction that is committed with its answer: if the process
// is killed, paused or overtaken, or the handler fails, its rows are rolled back, and the
// next try finds none of them. The table of the orders has no unique constraint.
// -transaction=false leaves out the transaction, to show what it prevents: with
// -abandoned rerun, an order whose process was paused is there twice.
//
// # MySQL and SQLite
//
// -mysql DSN is as -postgres, over MySQL or MariaDB. -sqlite FILE is as -postgres, for the desks of one machine: the orders, locks and answers
// survive a restart, and there is nothing to start.
//
// # Workers
//
// With -worker the desk places accepted orders, too. With -postgres these may be orders that
// another desk has accepted: the job, its ticket and the 202 are one commit, and so are the order
// and the final answer. A worker can be killed at any time, and another one goes on a lease later:
//
//	go run ./example/full -postgres postgres://desk@localhost/desk
//	go run ./example/full -postgres postgres://desk@localhost/desk -addr :8081 -worker
//
// Without a store, or with one -redis, accepted orders wait in the memory of the desk, which has to
// be its own worker. MySQL, SQLite and a quorum keep none: later=1 is refused with 501.
//
// # What it leaves out
//
// Without -postgres, -mysql or -sqlite orders live in the memory of the process that took them,
// without a bound: two processes on one Redis exclude each other, and each lists the orders it
// placed itself. There is no authentication: a real desk would take the user from it with
// keyfunc.Context, and would let only operators reach /locks and /console. The console warns
// visitors from other machines.
package main
