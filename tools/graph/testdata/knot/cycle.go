package knot

func (t *Top[T]) again() { t.run(false) }
