package npm

func (l Library) Verify(packed []byte) error { return l.verify(packed) }
