// Package overload measures what a Locker does when its server has less room
// than its callers ask for, and when its server is gone for a while. Tests
// assert on the figures, and the benchmark prints them.
//
//   - [Proxy] is a Redis server with a limit of commands a second, or one that falls silent or
//     refuses connections.
//   - redistest.Room is the capacity of the server, measured with bare commands.
//   - [Load] offers more than that, in a closed or in an open loop, and then drops
//     to a handful of callers.
//   - [Network] changes the way to the server under a steady load.
//   - [Outage] takes the server away from callers, and gives it back.
//
// It is for this project's own checks.
package overload
