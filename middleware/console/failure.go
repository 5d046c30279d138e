package console

import (
	"net/http"

	"github.com/httplatch/httplatch/lock"
)

// failure is the answer to a request that was not done.
type failure struct {
	Status int
	Title  string // a sentence
	Advice string
	Look   string // leads to the key; "" if there is none
	Outage bool   // every customer is refused
}

var (
	crossOrigin = failed(http.StatusForbidden, "This request came from another site.",
		"Nothing was done. If you sent it from the console itself, the proxy in front of it changes the Host header.")
	wrongMethod  = failed(http.StatusMethodNotAllowed, "The console does not take this method.", "See the Allow header.")
	wrongMedia   = failed(http.StatusUnsupportedMediaType, "The console takes forms only.", "Scripts use DELETE with key and token in the query.")
	badForm      = failed(http.StatusBadRequest, "The form is not one of this page.", "Nothing was freed. Go back and look the key up again.")
	badDelete    = failed(http.StatusBadRequest, "Say what to free: key and token, both as they were shown.", "Nothing was freed.")
	badPath      = failed(http.StatusBadRequest, "The path is not one.", "Give it as in the request, such as /orders.")
	queryTooLong = failed(http.StatusBadRequest, "This is longer than any key.", "Keys have 1,024 bytes at most.")
	notConfirmed = failed(http.StatusUnprocessableEntity, "The confirmation is not what the key reads.", "Nothing was freed.")
	notErased    = failed(http.StatusUnprocessableEntity, "The confirmation is not what was to be typed.", "Nothing was erased.")
	nothingThere = failed(http.StatusNotFound, "This key is free.", "It keeps no request waiting.")
	alreadyGone  = failed(http.StatusNotFound, "It is gone already.", "The key is free. Nothing was removed.")
	staleToken   = failed(http.StatusConflict, "Another holder has the key by now.",
		"What you looked at has ended, and another request has taken the key since. Nothing was freed. Look the key up again to see who has it.")
	answeredSince = failed(http.StatusConflict, "It has an answer by now.",
		"What you looked at has ended, and a repeat gets its answer: nothing is in the way. Nothing was freed.")
	cannotForget   = failed(http.StatusNotImplemented, "This store cannot forget a receipt.", "Nothing was freed. It ends by itself when its time is over.")
	freeingUnknown = failed(http.StatusServiceUnavailable, "The store did not confirm it.", "The key may or may not be free. Look it up again.")
)

// storeUnanswered is the answer about one key when the store did not answer.
func storeUnanswered(err error) failure {
	f := failed(http.StatusServiceUnavailable, "The store is down: every customer is refused.", unansweredText(err))
	f.Outage = true
	return f
}

// unansweredText says what err, or no answer, of the store means to customers.
func unansweredText(err error) string {
	return "The store does not answer" + classed(err) + ". Only pages that were set up to go on without it take requests. " +
		"What is held is not known, and freeing a key does not help. Call those who run the store, and look again when it answers."
}

// classed returns the class of err in brackets, or "" if err has no class. The log and the metrics
// have the same classes.
func classed(err error) string {
	if class := lock.Class(err); class != "_OTHER" {
		return " (" + visible(class) + ")"
	}
	return ""
}

func failed(status int, title, advice string) failure {
	return failure{Status: status, Title: title, Advice: advice}
}
