package middleware

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ProblemKind is the case of a [Problem]: the last part of its Type, and the name of its section in
// https://github.com/httplatch/httplatch/blob/main/docs/problems.md. All are stable.
type ProblemKind string

// The kinds of the refusals of this package.
const (
	ProblemHeld                ProblemKind = "held"                  // another request has the key of [Lock]
	ProblemCoolingDown         ProblemKind = "cooling-down"          // [WithCooldown]
	ProblemKeyMissing          ProblemKind = "key-missing"           // [keyfunc.ErrMissing]
	ProblemKeyInvalid          ProblemKind = "key-invalid"           // a [keyfunc.Error] with 400
	ProblemKeyNotSupported     ProblemKind = "key-not-supported"     // [Refuse]
	ProblemUnauthenticated     ProblemKind = "unauthenticated"       // a [keyfunc.Error] with 401
	ProblemBodyTooLarge        ProblemKind = "body-too-large"        // [WithBodyLimits], [WithBodyFirst]
	ProblemBodyUnreadable      ProblemKind = "body-unreadable"       // the body ended too early
	ProblemBodyConsumed        ProblemKind = "body-consumed"         // it was read outside the guard
	ProblemKeyFailed           ProblemKind = "key-failed"            // a key function failed
	ProblemInProgress          ProblemKind = "in-progress"           // the first request is in flight
	ProblemKeyReused           ProblemKind = "key-reused"            // the fingerprints differ
	ProblemFirstFailed         ProblemKind = "first-failed"          // the request waited for one that failed
	ProblemOutcomeUnknown      ProblemKind = "outcome-unknown"       // [lock.ErrAbandoned], [lock.ErrLost], [Upstream]
	ProblemResultNotReplayable ProblemKind = "result-not-replayable" // it was processed, and the answer not kept
	ProblemRolledBack          ProblemKind = "rolled-back"           // its transaction was rolled back
	ProblemUnconfirmed         ProblemKind = "unconfirmed"           // COMMIT was not answered
	ProblemUnavailable         ProblemKind = "unavailable"           // the store did not answer
	ProblemShuttingDown        ProblemKind = "shutting-down"         // [lock.ErrClosed]
)

const kindBase = "https://github.com/httplatch/httplatch/blob/main/docs/problems.md#"

// Kind returns the kind of p, "" for a Type of another package.
func (p *Problem) Kind() ProblemKind {
	if name, ok := strings.CutPrefix(p.Type, kindBase); ok {
		return ProblemKind(name)
	}
	return ""
}

type kindRow struct {
	status     int           // unless an option or the cause chooses another
	retryAfter time.Duration // 0: no Retry-After, unless the time left is known
	again      bool          // clients send the same request again by themselves
	endsKey    bool          // browsers forget its key, as after each 400 that is not sent again
	title      string        // a fixed sentence, true for every guard: behind Dedupe the client has sent no key
	next       string        // says to a program what to do, unless Retry-After says when to repeat; "" for refusals of Lock and Refuse
	page       words
}

// What programs do after a refusal. With Dedupe, they have no key to name.
const (
	correctIt = "Correct that, and send the call again."
	sendAgain = "Send the same call again"
	inVain    = "A repeat would end in the same way."
)

// kinds has a row for each kind. From it and the table of docs/problems.md, the tests TestGolden write testdata, docs/openapi.yaml,
// and the lists in client/verdict.go and js/repeat.js.
var kinds = map[ProblemKind]kindRow{
	ProblemHeld: {status: http.StatusConflict, retryAfter: time.Second, title: "Another request for the same thing is still being processed.", page: words{
		title:  "Another request is still being processed",
		effect: notDone + " It has to wait until another request for the same thing is finished.",
		advice: reload + " It is processed once.",
		again:  "Look again", underAgain: "Wait a moment, and look again. Your form is then processed, once.",
		alone: "The form you have just sent was not processed, because another one for the same thing still is. " +
			"If you have clicked twice, that one is your first click, and what you wanted may be there in a moment. " +
			"Look for it before you send the form again, or it may happen twice.",
	}},
	ProblemCoolingDown: {status: http.StatusTooManyRequests, title: "A request for the same thing was answered a moment ago.", page: words{
		title:  "This was done a moment ago",
		effect: notDone + " A request for the same thing was processed just before it.",
		advice: look + ". Only if you want it once more, send the form again later.", wait: true,
	}},
	ProblemKeyMissing:      {status: http.StatusBadRequest, title: "The request lacks the value that says which requests are the same.", next: correctIt, page: unusable},
	ProblemKeyInvalid:      {status: http.StatusBadRequest, title: "The value that says which requests are the same is malformed.", next: correctIt, page: unusable},
	ProblemKeyNotSupported: {status: http.StatusBadRequest, title: "The request has an Idempotency-Key, which is not supported here, so it was not processed.", page: serverFault},
	ProblemUnauthenticated: {status: http.StatusUnauthorized, title: "The request does not say whose it is.", next: "Authenticate, and send the call again.", page: words{
		title:  "Please sign in",
		effect: notDone + " The server does not know who has sent it.",
		advice: "Sign in, and send the form again.",
	}},
	ProblemBodyTooLarge: {status: http.StatusRequestEntityTooLarge, title: "The request body is too large.", next: correctIt, page: words{
		title:  "Too large",
		effect: notDone + " It is larger than this site accepts.",
		advice: "Go back, and send less text, or smaller files.",
	}},
	ProblemBodyUnreadable: {status: http.StatusBadRequest, again: true, title: "The request body could not be read to its end.", next: sendAgain + ".", page: words{
		title:  "Not all of it has arrived",
		effect: notDone + " The connection ended too early, or the form was damaged on its way.",
		advice: reload, alone: notDone + " It has not arrived as a whole. " + firstGone,
	}},
	ProblemBodyConsumed: {status: http.StatusInternalServerError, title: "The server could not read the request body any more, and did not process the request.", next: inVain, page: serverFault},
	ProblemKeyFailed:    {status: http.StatusInternalServerError, again: true, title: "The server could not find out which requests are the same, and did not process this one.", next: sendAgain + " later.", page: serverFault},
	ProblemInProgress: {status: http.StatusConflict, retryAfter: time.Second, again: true, title: "The same request was sent before, and is still being processed.", page: words{
		title:  "Still being processed",
		effect: "Your form has arrived and is being processed. It is processed only once, however often you send it.",
		advice: reload + " You get the answer to what you sent first.",
		again:  "Look again", underAgain: "Wait a moment, and look again. You get the answer as soon as there is one.",
	}},
	ProblemFirstFailed: {status: http.StatusServiceUnavailable, retryAfter: time.Second, again: true, title: "The same request was sent before and failed, and its answer cannot be sent again.", page: words{
		title:  "That did not work",
		effect: "You have sent this form more than once. The first time has failed, and this time it was not processed.",
		advice: reload, again: "Send again", underAgain: "Please send it again.",
	}},
	ProblemKeyReused: {status: http.StatusUnprocessableEntity, endsKey: true, title: "The key was used for a different request.", next: "The first request may have had its effect. Only if this is another intention, send it with a new key.", page: words{
		title:  "This form was sent before, with something else in it",
		effect: "What you have just sent was not processed. What you sent first may be done, or on its way.",
		advice: "Look for that first. If you want to send something else, open the form again, and send it from there.",
	}},
	ProblemOutcomeUnknown: {status: http.StatusConflict, endsKey: true, title: "The same request was sent before and did not finish, and it is not known whether it had an effect.", next: "Find out whether it had. Only if it had none, send it as a new one, with another key if it has one.", page: words{
		title:  "It is not known whether this was done",
		effect: "The server was interrupted while it processed your form. What you wanted may be there, in part, or not at all.",
		advice: look + ". Sending this form again does nothing. If it is not there, open the form again, and send it from there.",
	}},
	ProblemResultNotReplayable: {status: http.StatusConflict, endsKey: true, title: "The request was processed, but its answer cannot be sent again.", next: "Do not send it again. Look for its result.", page: words{
		title:  "This was done",
		effect: "Your form was processed, once. Only the answer to it cannot be shown again.",
		advice: "Do not send it again. Look for the result where you would look for it otherwise.",
	}},
	ProblemRolledBack: {status: http.StatusServiceUnavailable, retryAfter: time.Second, again: true, title: "The request was processed, but could not be completed, and nothing of it was kept.", next: inVain, page: words{
		title:  "That did not work",
		effect: "Your form could not be processed to its end, and everything was undone. There is nothing of it.",
		advice: reload, again: "Send again", underAgain: "Please send it again.",
	}},
	ProblemUnconfirmed: {status: http.StatusServiceUnavailable, retryAfter: time.Second, again: true, title: "The request was processed, and the database has not confirmed yet whether it took effect.", page: words{
		title:  "Not confirmed yet",
		effect: "Your form was processed, but the database has not confirmed it yet. It counts as a whole or not at all.",
		advice: reload + " You get the answer, and nothing is done twice.",
		again:  "Look again", underAgain: "Wait a moment, and look again. You get the answer, and nothing is done twice.",
	}},
	ProblemUnavailable:  {status: http.StatusServiceUnavailable, retryAfter: time.Second, again: true, title: "Duplicates cannot be excluded at the moment, so this attempt was not processed.", page: notNow},
	ProblemShuttingDown: {status: http.StatusServiceUnavailable, retryAfter: time.Second, again: true, title: "The server is shutting down and did not process the request.", page: notNow},
}

func (k ProblemKind) problem(err error) *Problem {
	row := kinds[k]
	return &Problem{Status: row.status, Type: kindBase + string(k), Title: row.title, RetryAfter: row.retryAfter, Err: err}
}

// words are the texts of a page for one kind of problem.
type words struct {
	title  string // says what happened
	effect string // says whether the request had an effect
	advice string // if there is no button
	again  string // labels the button; "": a button would be useless

	underAgain string // advice with a button; "": advice
	alone      string // effect and advice for Lock alone, which may process a repeat, too; "": effect and advice
	wait       bool   // another submission is possible after the time of Retry-After
}

func (x words) text(once, resend bool) []string {
	switch {
	case !once && x.alone != "":
		return []string{x.alone}
	case resend && x.underAgain != "":
		return []string{x.effect, x.underAgain}
	case x.effect == "":
		return nil
	}
	return []string{x.effect, x.advice}
}

const (
	reload = "Reload this page after a moment. If your browser asks whether to send the form again, agree."
	afresh = "Open the form again, and send it from there."
	look   = "Look whether what you wanted is there already"
	noFix  = "It is not your mistake. If it stays so, please tell the operator of this site."

	notDone   = "The form you have just sent was not processed."
	firstGone = "If you have clicked twice, the first click may have been processed. " +
		look + ". If it is not, go back and send the form again."
)

// Texts that two kinds of problem share.
var (
	notNow = words{
		title:  "Not possible at the moment",
		effect: notDone,
		advice: reload, again: "Send again", underAgain: "Please send it again in a moment.",
		alone: notDone + " " + firstGone,
	}
	unusable    = words{title: "This form could not be used", effect: notDone + " Something is wrong, or missing, in what your browser has sent.", advice: afresh}
	serverFault = words{title: "A mistake of this server", effect: notDone, advice: noFix}
)

// words returns the texts for the kind of p, or general texts if the application has defined the Type of p.
func (p *Problem) words() words {
	kind := p.Kind()
	row, ok := kinds[kind]
	switch {
	case !ok:
		row.page.title = cmp.Or(p.Title, http.StatusText(p.status()))
	case kind == ProblemRolledBack && p.Status == http.StatusInternalServerError:
		row.page.again, row.page.advice = "", noFix // a repeat would end in the same way
	}
	return row.page
}

func plural(n int64, of string) string {
	if n != 1 {
		of += "s"
	}
	return strconv.FormatInt(n, 10) + " " + of
}
