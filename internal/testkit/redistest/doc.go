// Package redistest starts real redis-server processes for tests and
// benchmarks: on loopback, on their own port, in a temporary directory. They
// end with the test, in whatever way it ends.
//
//	srv := redistest.Start(t)                              // one for this test
//	srv := redistest.Start(t, "--maxmemory", "1")          // configured
//	cl := redistest.StartCluster(t, 1, nil)                // cluster mode
//	cl.AddReplicas(t)                                      // with a replica of each master
//	w := redistest.StartSentinel(t, 1)                     // a master and a replica, and three Sentinels
//
// Tests that neither stop nor flush a server share one, and use distinct keys:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }
//	...
//	srv := redistest.Shared(t)
//
// Without a redis-server (on PATH, or named by the environment variable
// REDIS_SERVER) tests are skipped with a reason; with CI=true they fail, so
// that a build machine never passes by skipping.
//
// Servers are real processes on real clocks: do not start one, nor use its
// client, inside a testing/synctest bubble.
package redistest
