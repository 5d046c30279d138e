package middleware

import (
	"cmp"
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

// words returns the texts for the kind of p, or the general texts if the application has defined
// the Type of p.
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
