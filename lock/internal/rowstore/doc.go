// Package rowstore has what pgstore, mysqlstore and sqlitestore share. A reader of one store knows the
// others: store.go has New, Open and the options, schema.go Migrate and Check, calls.go the calls of
// lock.Store and lock.Inspector, transaction.go the methods of lock.Transactor, session.go the
// connection of work and its transaction, and errors.go the meaning of errors.
//
// # Connections
//
// Each transaction of the work takes a connection of the pool or *sql.DB that the store was given, for
// as long as the work runs. All other calls, such as claims, renewals and clean-up, use a few of the
// store's own connections. So renewals go on even if work holds every connection of the pool.
//
// # Overload
//
// pgstore and mysqlstore measure how fast waiting calls get a connection. A claim that would not be
// served in half of its time is refused at once, as not applied, with an error that matches
// lock.ErrDenied. A claim whose work would wait for a connection for more than 5 s is refused in the
// same way. Renewals, receipts and releases are not refused. Work waits for a connection as long as its
// caller waits, 10 s at most. Waiters poll: they are not notified when a key is free.
//
// # Clocks
//
// If the clock is set back, leases last longer by the difference, and nothing is granted twice. If it is
// set forward, leases end earlier than their holders expect. lock.WithFencing guards against that, and
// work in a transaction is not affected: its receipt is refused with the claim. A fence is drawn after
// its claim has won the key, so that the fences of a key rise in the order of its grants: one that was
// drawn before could be lower than the fence of an earlier holder for which the claim has waited.
//
// # COMMIT
//
// A COMMIT is never cancelled, neither when its caller's time is over nor when its connection fails. After
// one without an answer, the store asks for the outcome by a write, which no standby can answer. When the
// write is committed, the answer is final: if COMMITs wait for a standby, the standby has both commits.
//
// # Where they differ
//
//	                      pgstore                        mysqlstore                     sqlitestore
//	a claim               one INSERT that takes ended    SELECT and INSERT, shared by   reads and writes while the file
//	                      rows, then a SELECT            all claims that wait           of claims is locked
//	a lost race           reads, and tries again         reads, and tries again         there is none
//	a set of keys         one statement                  a key after the other          a key after the other
//	time                  clock_timestamp() of a server  UTC_TIMESTAMP(6) of a server   the machine's clock
//	own connections       4, by rank                     4, by rank                     2 of a goroutine for all calls, and
//	                                                                                    1 of one that replays
//	values                parameters                     in the text, hexadecimal       parameters
//	BEGIN                 with the first statement       before the first statement     BEGIN IMMEDIATE, in line
//	is it still the       a mark: a setting of the       a savepoint, and a row before  BEGIN fails in a transaction
//	transaction begun?    session                        statements that may end it
//	receipt of work       fails without the claim, and   changes no row without the     COMMIT while the file of claims
//	                      COMMIT is sent with it         claim; then COMMIT             is locked
//	renewal of work       a row of its own: the note     the row; the settle reads the  the file of claims
//	                                                     newest row
//	receipt too large     rolled back: 1 GB              left empty: its packet         rolled back: 1 GB
//	COMMIT unanswered     outcome: negates the attempt,  outcome: locks the row, KILL   waits for the disk, and then
//	                      ends the idle session          of the idle session            writes over the log
//	readers wait for      a logical message              a commit of a fence            there is none
//	the replica
//	replaced receipt      in the work's transaction      no lock.Amender                in the work's transaction, from
//	                                                                                    either file
//	fences                a sequence                     AUTO_INCREMENT of a table      a counter, at least the clock
//	clean-up              DELETE, SKIP LOCKED, on from   SELECT, SKIP LOCKED, DELETE,   a DELETE each 64 calls in each
//	                      the last place                 on from the last place         file
//	stays after its end   10 min, if it is a record      10 min                         10 min
package rowstore
