package npm

// Verify is verify.
func (l Library) Verify(packed []byte) error { return l.verify(packed) }
