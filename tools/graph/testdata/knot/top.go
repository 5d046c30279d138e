// Package knot is measured by the tests.
package knot

// Top uses both other files of the circle.
type Top[T any] struct {
	Part below
	item T
}

func (t *Top[T]) run(again bool) {
	if again {
		t.again()
	}
	t.Part.visit()
}
