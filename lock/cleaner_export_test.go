package lock

// LimitOrphans makes l give up the oldest clean-up when there are more than most. The
// real bound takes too long to reach in a test.
func LimitOrphans(l *Locker, most int) { l.core.cleaner.most = most }
