// Package rowstore has what pgstore, mysqlstore and sqlitestore share: the rules of a row and the loop
// of a claim ([Row], [Claim]), lists and pages ([List], [Page]), the meaning of errors ([Errors]), the
// connection that work gets ([Work], [Lender]), calls that wait and are executed at once ([Calls]),
// the queue for the store's own connections with its refusals ([Acquire], [Admit]), and the count of
// claims for the clean-up ([Sweeps]). Package outcome asks for the outcome of a COMMIT.
//
// The stores have the same files, and a file has the same in each: calls.go the calls of lock.Store,
// transaction.go the methods of lock.Transactor, session.go the connection of work, tx.go its
// transaction, list.go, errors.go, check.go, schema.go, options.go and store.go.
//
// This is where they differ:
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
