package forms_test

import (
	"testing"

	"github.com/httplatch/httplatch/example/full/internal/browser"
)

// walk is a person at the form of a shop.
type walk struct {
	*testing.T
	*browser.Page

	shop *shop
}

// fill fills in the form, as a person does before it is sent.
func (w walk) fill() {
	w.Helper()
	w.AwaitText("h1", "New order")
	w.Type("[name=sku]", "tea")
}

func (w walk) thanks() {
	w.Helper()
	w.AwaitText("h1", "Thank you for order")
}

// again fills the form in that is shown, and sends it.
func (w walk) again() {
	w.Helper()
	w.fill()
	w.Follow(func() { w.Click("button") })
	w.thanks()
}

// twice does what sends the form, and does it again while the server has no answer yet. A
// browser whose first request is not on its way yet would send one only.
func (w walk) twice(send func(), sends int) {
	w.Helper()
	w.shop.hold()
	w.Follow(func() {
		send()
		w.shop.sent(w.T, 1)
		send()
		w.shop.sent(w.T, sends)
		w.shop.release()
	})
	w.thanks()
}

// unanswered sends the form, whose order is placed, and whose answer is lost.
func (w walk) unanswered() {
	w.Helper()
	w.shop.lose.Store(true)
	w.Follow(func() { w.Click("button") })
	w.shop.lose.Store(false)
}
