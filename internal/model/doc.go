// Package model has models of the lock's protocol, small enough for the model
// checker Spin to try every order of events in them, and a test that does so.
// It has no code of its own. Each model runs in variants: those that stand for
// what the library does must keep the property, and those that leave a part of
// it out must break it, which shows that the part is needed and that the model
// could tell.
//
//   - orphan.pml: a claim that ended without a grant does not keep the key. An entry
//     that it leaves ends one lease after its landing, even if its clean-up is
//     dropped, since no claim begins a lease anew. Clean-up ends it sooner: by a
//     delete that found the entry if no more than one send can have made one (not
//     answered, or granted too late), by one that was sent after the answers to all
//     sends, or by one that was sent when nothing could land any longer. Each had to be
//     answered. A server that was stalled may still take that last delete before the
//     claim, unless it refuses late claims. No delete touches a receipt.
//   - fence.pml: a holder that was paused beyond its lease does not undo the
//     work of the next one. Only a fence at the resource sees to that. To look
//     at the lease before the write does not.
//   - sight.pml: a process is not refused by its own dead claims, and does not delete
//     its own living ones, if it deletes on sight what it knows to be dead, knows it
//     from the end of the acquire on, and does not forget it with its clean-up.
//   - takeover.pml: a takeover whose answer was lost is replaced by the next call of its
//     process, which goes on as that attempt. To wait for its lease counts an attempt that
//     was none, to delete it makes the next run take itself for the first, and to go on
//     without a claim of its own makes two holders.
//   - set.pml: all keys of a set are taken, or none, some set of free keys is granted, and no key
//     stays behind, with one command for all keys and with one for each in one order. A
//     command that takes a part, an order of each caller's own, a release in part, and
//     clean-up of a part break it.
//   - ticket.pml: a key that was handed over is resumed or free, never both, and resumed once. The
//     claim of the ticket is sent once if a send of the holder's own claim is still in doubt:
//     with two sends, a used ticket can become good again.
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
// that clocks can do, and first leases, which are shorter than what their renewals ask
// for: a claim in orphan.pml lands with the lease that it asked for, and nothing but its
// holder makes that longer. But that the longest delay of the network is known, and
// has passed, is assumed where clean-up relies on it, and that not_after has
// passed on the server when the client believes so, where that one does. A delete
// that got no answer is sent again; that clean-up gives up after the last one is a
// clean-up that was dropped.
//
// There are two clients and one key, but two keys in set.pml and four clients in ticket.pml. There
// is one server, which keeps what it has acknowledged, and one or two sends of a claim.
// Renewals, failovers and quorums are not part of them,
// nor is a process that dies: what it leaves ends with its lease. In set.pml no lease ends.
package model
