// Package pgproxy is a TCP proxy in front of one PostgreSQL server, or PgBouncer,
// that can lose, delay and cut each exchange that passes through it:
//
//	p := pgproxy.Start(t, cluster.Addr(), func(x *pgproxy.Exchange) pgproxy.Fault {
//		if x.Begins("COMMIT") {
//			return pgproxy.Fault{Action: pgproxy.LoseReply} // applied, and the client does not know
//		}
//		return pgproxy.Fault{}
//	})
//	pool, err := pgxpool.New(ctx, p.URL(db, "postgres"))
//	...
//	p.Wait(t, pgproxy.LoseReply, 1)
//
// # What it understands
//
// An exchange is the messages that a client sends until it waits for an answer: a simple
// Query, or the messages of the extended protocol until Sync. It ends with the
// server's ReadyForQuery. The texts of prepared statements are remembered by
// their names, for each connection. Pipelined exchanges keep their order.
//
// Connection start and authentication pass without a decision. SSLRequest and
// GSSENCRequest are answered "no": the proxy has to read the messages. COPY
// passes as a part of the exchange that begins it. A CancelRequest, which comes
// on a connection of its own, is an exchange without statements.
//
// # What it does not
//
// A client that sends Flush and waits for answers before Sync waits for ever: the
// proxy forwards whole exchanges. Neither pgx nor PgBouncer does that.
// Replication connections are not understood.
//
// Its own tests need a driver and a server, and are in module lock/pgstore.
package pgproxy
