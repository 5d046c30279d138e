// Package model has models of the lock's protocol, small enough for the model
// checker Spin to try every order of events in them, and a test that does so.
// It has no code of its own. Each model runs in variants: those that stand for
// what the library does must keep the property, and those that leave a part of
// it out must break it, which shows that the part is needed and that the model
// could tell.
//
//   - orphan.pml: a claim whose acquire did not end in a grant never keeps the
//     key. A time-out that is read as "not taken" does that, and so does one
//     compare-and-delete that overtakes the claim. Enough is a sweep by two
//     answered deletes, the first sent after the claim can no longer land, the
//     second after the answer to the first. So is one delete, if the server
//     refuses late claims and it is sent after the time from which it does.
//   - fence.pml: a holder that was paused beyond its lease does not undo the
//     work of the next one. Only a fence at the resource sees to that. To look
//     at the lease before the write does not.
//   - sight.pml: to delete an entry of the own process that is in the way never
//     deletes a living lease, if only dead claims are deleted, or if the clients
//     of the process claim one after the other. The library does both.
//
// # What they do not show
//
// They show that the rules are right, not that the code follows them. That is
// for the tests of the packages and of internal/faults.
//
// A fence orders the writes to one resource; it does not exclude. A holder whose
// lease has ended may still write until the next one has written, and one
// variant of fence.pml shows it.
//
// There is no time in them. A lease may end at any moment, which includes all
// that clocks can do; but that the longest delay of the network is known, and
// has passed, is assumed where a sweep relies on it, and that not_after has
// passed on the server when the client believes so, where that one does. How
// long a clean-up takes, and whether it ever ends on a network that loses
// everything, is not asked.
//
// There are two clients, one key, one server, which keeps what it has been told,
// and one or two sends of a claim. Renewals, receipts, takeovers, failovers and
// quorums are not part of them, nor is a process that dies: what it leaves ends
// with its lease.
package model
