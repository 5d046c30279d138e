// Package sqlproxy is a TCP proxy in front of one server of PostgreSQL (or PgBouncer), MySQL or
// MariaDB, that can lose, delay and cut each exchange that passes through it:
//
//	p := sqlproxy.Postgres(t, cluster.Addr(), func(x *sqlproxy.Exchange) sqlproxy.Fault {
//		if x.Begins("COMMIT") {
//			return sqlproxy.Fault{Action: sqlproxy.LoseReply} // applied, and the client does not know
//		}
//		return sqlproxy.Fault{}
//	})
//	pool, err := pgxpool.New(ctx, p.URL(db, "postgres"))
//	...
//	p.Wait(t, sqlproxy.LoseReply, 1)
//
// # PostgreSQL
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
// A client that sends Flush and waits for answers before Sync waits for ever: the
// proxy forwards whole exchanges. Neither pgx nor PgBouncer does that.
// Replication connections are not understood.
//
// # MySQL
//
// An exchange is a query and its answer. Statements that are prepared at the server pass without a
// decision. The end of an answer is not recognized: [Proxy.Wait] is for PostgreSQL.
//
// The tests of this package need a driver and a server, and are in module lock/pgstore.
package sqlproxy
