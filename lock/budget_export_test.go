package lock

// WithoutRetryBudget lets l send again, and clean up, as if it cost nothing.
func WithoutRetryBudget(l *Locker) {
	for range 1 << 24 {
		l.core.sender.Retries.Give()
	}
}
