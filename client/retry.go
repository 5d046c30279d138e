package client

import (
	"context"
	"io"
	"net/http"
	"time"
)

// judgeAttempt reads the problem of the answer, and decides whether the attempt allows another
// one. broken is the error of the attempt: err, or the error with which a refusal broke
// off.
func (c *call) judgeAttempt(resp *http.Response, err error) (v verdict, broken error) {
	var p *Problem
	if broken = err; err == nil {
		resp.Request = c.shown
		p, broken = problemOf(resp)
	}
	return judge(c.shown.Context(), c.shown.Method, c.keyed, resp, p, broken), broken
}

// repeat prepares the attempt that follows this verdict. again is false if no attempt follows.
// Otherwise repeat closes resp, waits for the pause, and returns the body of the next attempt. If
// the context ends meanwhile, ended is its cause.
func (c *call) repeat(v verdict, resp *http.Response, err error) (body io.ReadCloser, again bool, ended error) {
	ctx := c.shown.Context()
	body, pause := c.plan(ctx, &v, resp)
	c.report(v, pause, resp, err)
	if !v.again {
		return nil, false, nil
	}
	if resp != nil {
		discard(resp)
	}
	if ended = sleep(ctx, pause); ended != nil && body != nil {
		_ = body.Close()
	}
	return body, ended == nil, ended
}

// sleep returns the cause if the context ends before d is over.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// plan applies the limits to a verdict. If another attempt follows, it returns the body of the
// attempt and the pause before it.
func (c *call) plan(ctx context.Context, v *verdict, resp *http.Response) (body io.ReadCloser, pause time.Duration) {
	if v.inFlight {
		c.waits++
	}
	if !v.again {
		return nil, 0
	}
	pause = Backoff(c.first, c.longest, c.sent-1, resp)
	switch {
	case c.attempts == 1 || c.sent-c.waits >= c.attempts:
		return nil, v.refuse("no attempts are left")
	case !c.body.repeatable():
		return nil, v.refuse("its body cannot be read again")
	case !fits(ctx, pause, c.maxWait-time.Since(c.began)):
		return nil, v.refuse("the pause would be too long")
	case !v.inFlight && !c.budget.take():
		return nil, v.refuse("the budget is used up")
	}
	body, err := c.body.next()
	if err != nil {
		return nil, v.refuse("its body cannot be read again: " + err.Error())
	}
	return body, pause
}

// refuse changes a verdict from repeat to stop, because of a limit. It returns no pause.
func (v *verdict) refuse(limit string) time.Duration {
	v.again, v.reason = false, v.reason+"; "+limit
	return 0
}

// report calls the hook, if there is one.
func (c *call) report(v verdict, pause time.Duration, resp *http.Response, err error) {
	if c.hook == nil {
		return
	}
	a := Attempt{
		Request: c.shown,
		Number:  c.sent,
		Problem: v.kind,
		Err:     err,
		Again:   v.again,
		Wait:    pause,
		Reason:  v.reason,
	}
	if resp != nil {
		a.Status = resp.StatusCode
	}
	c.hook(a)
}
