package middleware

import (
	"net/http"
	"strconv"
)

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

// pageWords has the texts of pages by kind of problem.
var pageWords = map[ProblemKind]words{
	ProblemHeld: {
		title:  "Another request is still being processed",
		effect: notDone + " It has to wait until another request for the same thing is finished.",
		advice: reload + " It is processed once.",
		again:  "Look again", underAgain: "Wait a moment, and look again. Your form is then processed, once.",
		alone: "The form you have just sent was not processed, because another one for the same thing still is. " +
			"If you have clicked twice, that one is your first click, and what you wanted may be there in a moment. " +
			"Look for it before you send the form again, or it may happen twice.",
	},
	ProblemCoolingDown: {
		title:  "This was done a moment ago",
		effect: notDone + " A request for the same thing was processed just before it.",
		advice: look + ". Only if you want it once more, send the form again later.", wait: true,
	},
	ProblemInProgress: {
		title:  "Still being processed",
		effect: "Your form has arrived and is being processed. It is processed only once, however often you send it.",
		advice: reload + " You get the answer to what you sent first.",
		again:  "Look again", underAgain: "Wait a moment, and look again. You get the answer as soon as there is one.",
	},
	ProblemFirstFailed: {
		title:  "That did not work",
		effect: "You have sent this form more than once. The first time has failed, and this time it was not processed.",
		advice: reload, again: "Send again", underAgain: "Please send it again.",
	},
	ProblemUnconfirmed: {
		title:  "Not confirmed yet",
		effect: "Your form was processed, but the database has not confirmed it yet. It counts as a whole or not at all.",
		advice: reload + " You get the answer, and nothing is done twice.",
		again:  "Look again", underAgain: "Wait a moment, and look again. You get the answer, and nothing is done twice.",
	},
	ProblemRolledBack: {
		title:  "That did not work",
		effect: "Your form could not be processed to its end, and everything was undone. There is nothing of it.",
		advice: reload, again: "Send again", underAgain: "Please send it again.",
	},
	ProblemUnavailable:  notNow,
	ProblemShuttingDown: notNow,
	ProblemOutcomeUnknown: {
		title:  "It is not known whether this was done",
		effect: "The server was interrupted while it processed your form. What you wanted may be there, in part, or not at all.",
		advice: look + ". Sending this form again does nothing. If it is not there, open the form again, and send it from there.",
	},
	ProblemResultNotReplayable: {
		title:  "This was done",
		effect: "Your form was processed, once. Only the answer to it cannot be shown again.",
		advice: "Do not send it again. Look for the result where you would look for it otherwise.",
	},
	ProblemKeyReused: {
		title:  "This form was sent before, with something else in it",
		effect: "What you have just sent was not processed. What you sent first may be done, or on its way.",
		advice: "Look for that first. If you want to send something else, open the form again, and send it from there.",
	},
	ProblemUnauthenticated: {title: "Please sign in", effect: notDone + " The server does not know who has sent it.", advice: "Sign in, and send the form again."},
	ProblemBodyTooLarge:    {title: "Too large", effect: notDone + " It is larger than this site accepts.", advice: "Go back, and send less text, or smaller files."},
	ProblemBodyUnreadable: {
		title:  "Not all of it has arrived",
		effect: notDone + " The connection ended too early, or the form was damaged on its way.",
		advice: reload, alone: notDone + " It has not arrived as a whole. " + firstGone,
	},
	ProblemKeyMissing:      unusable,
	ProblemKeyInvalid:      unusable,
	ProblemKeyNotSupported: serverFault,
	ProblemBodyConsumed:    serverFault,
	ProblemKeyFailed:       serverFault,
}

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

// words returns the texts for the kind of p, or for a problem whose Type is the
// application's.
func (p *Problem) words() words {
	kind := p.Kind()
	found, ok := pageWords[kind]
	switch {
	case !ok && p.Title != "":
		return words{title: p.Title}
	case !ok:
		return words{title: http.StatusText(p.status())}
	case kind == ProblemRolledBack && p.Status == http.StatusInternalServerError:
		found.again, found.advice = "", noFix // a repeat would end in the same way
	}
	return found
}

func plural(n int64, of string) string {
	if n != 1 {
		of += "s"
	}
	return strconv.FormatInt(n, 10) + " " + of
}
