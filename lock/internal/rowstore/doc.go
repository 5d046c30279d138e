// Package rowstore has the parts that the stores over a table of a database share: the rules of
// a row, the connection that work gets, the queue for connections with its refusals, pages of
// entries, the errors of transactions, and the count of claims for the clean-up.
package rowstore
