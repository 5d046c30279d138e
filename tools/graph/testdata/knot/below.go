package knot

type below struct{ top *Top[int] }

func (b below) visit() {
	if b.top != nil {
		b.top.again()
	}
}
