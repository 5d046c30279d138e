// Package suite has the measurements, as benchmarks. Each runs its contenders one after the
// other in every round, in random order, so that other load on the machine affects all of
// them, and names its results BenchmarkPart/round=1/case=.../who=..., with ":" for "/" in
// the names of contenders. Package report compares the results of a round with each other;
// benchstat reads them too.
package suite
