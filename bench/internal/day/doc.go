// Package day is the founding incident at its own scale: a day of orders in virtual time, with
// the libraries' own code. Customers come back when they are refused, desks are deployed, killed
// and paused, a server stalls, restarts and fails over, and the network between them loses or
// delays what it carries. It counts who was locked out, and for how long, and which orders
// were doubled, lost, or reported falsely.
//
// A seed fixes the customers, the latencies and the faults. It does not fix the
// interleaving, which is the scheduler's: a day is seeded, and not deterministic.
package day
