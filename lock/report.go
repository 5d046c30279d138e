package lock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
)

// log writes a line about the key of a lease, without the key. key_sha256 is the beginning of the
// name under which a store keeps a record of Once. The name is not secret. The value of "console",
// appended to the address of package console, is the link to the record.
func (l *Locker) log(ctx context.Context, level slog.Level, message string, e *Lease, attrs ...slog.Attr) {
	which := []slog.Attr{slog.String("name", e.name()), slog.String("key_sha256", keytext.Digest(e.Key()))}
	if e.run != nil {
		which = append(which, slog.String("console", "?key="+e.entry))
	}
	l.cfg.logger.LogAttrs(ctx, level, message, append(which, attrs...)...)
}

// logLost reports work that goes on, or went on, without its lease.
func (l *Locker) logLost(ctx context.Context, e *Lease, held time.Duration, why *loss) {
	attrs := []slog.Attr{slog.Any("error", why), slog.Duration("held", held), attrDo(why.do)}
	if e.run == nil { // package console finds a key by its hash
		attrs = append(attrs, slog.String("console", "?q="+keytext.Digest(e.Key())))
	}
	l.log(ctx, slog.LevelError, "lock: lease lost before its work had ended", e, attrs...)
}

// logTakenOver reports work that may already have had its effect.
func (l *Locker) logTakenOver(ctx context.Context, e *Lease) {
	l.log(ctx, slog.LevelWarn, "lock: work whose holder has vanished runs again", e, slog.Int("attempt", e.attempt()),
		attrDo("Check whether the work took effect twice. Check also why the first process ended."))
}

// warning is a line that every request may cause, so each class is written at most once a minute.
type warning struct{ class, message, do string }

// ofKey is w for the key of e, with a class for each first digit of its hash: the line of one customer does not hide
// the line of another, and there are at most 16 a minute.
func (w warning) ofKey(e *Lease) warning {
	w.class += " " + keytext.Digest(e.Key())[:1]
	return w
}

var (
	warnAbandoned = warning{
		"abandoned", "a key is refused because its holder has vanished",
		"Check that the holder has ended, and whether its work took effect. If it did not, free the entry (package console, or Inspector.Forget); " +
			"if it did, leave the entry. The key is refused meanwhile, unless WithRerunAbandoned is set.",
	}
	warnPossibleEffect = warning{
		"doubtful", "work has failed after a request to another service that may have had an effect",
		"Check whether the request had an effect. If it had none, free the entry (package console, or Inspector.Forget); if it had, leave the entry. " +
			"Repeats are refused meanwhile.",
	}
	warnBypassed = warning{
		"bypassed", "work runs unprotected, as WithFailOpen allows",
		"Check the store. Until it answers, duplicates that reach other processes are not refused.",
	}
	warnNoRoom = warning{
		"no room", "the store has no room for a receipt, and keeps only that the work was done",
		"Give the store more room (WithLimits), or keep less: shorter answers, a shorter WithKeep. " +
			"Until then repeats of such work learn only that it was done.",
	}
	warnBacklogFull = warning{
		"backlog", "receipts that wait for the store fill their room in memory, and further ones are dropped",
		"Check the store, which does not answer. Until it does, repeats of such work learn only that it was done.",
	}
	warnEntryLost = warning{
		"entry lost", "the store had lost the entry of running work, whose receipt got a new one",
		"If no operator freed the entry, the server has evicted it, failed over, or restarted without persistence. " +
			"Repeats that came meanwhile may have run: compare what was written. Call Store.Check.",
	}
	warnAborted = warning{
		"aborted", "work was rolled back because its transaction could not be committed",
		"Have the work return an error when a statement of its transaction has failed, or make such statements in a savepoint. " +
			"Leave the end of the transaction to the Locker.",
	}
	warnDropped = warning{
		"clean-up dropped", "a clean-up was given up for a newer one",
		"Check the store, which answers too few calls. An entry that is left refuses other processes until its lease is over; " +
			"an entry of Once then says that its outcome is unknown.",
	}
)

// warn writes w, about the key of e unless e is nil.
func (l *Locker) warn(ctx context.Context, e *Lease, w warning, attrs ...slog.Attr) {
	due, silent := l.core.logged.Due(w.class)
	if !due {
		return
	}
	message := "lock: " + w.message + "; others are not logged for a minute"
	if attrs = append(attrs, slog.Int("repeated", silent), attrDo(w.do)); e == nil {
		l.cfg.logger.LogAttrs(ctx, slog.LevelWarn, message, attrs...)
	} else {
		l.log(ctx, slog.LevelWarn, message, e, attrs...)
	}
}

// logFailure logs a failure of the store, each class at most once a minute in an outage.
func (l *Locker) logFailure(ctx context.Context, err error) {
	class := Class(err)
	if class == classCancelled {
		return
	}
	if !errors.Is(err, errors.ErrUnsupported) {
		l.core.outage.fail()
	}
	due, silent := l.core.logged.Due(class)
	if !due {
		return
	}
	const refused = "work is refused, or runs unprotected where WithFailOpen is set."
	message, do := "lock: the store did not serve a call", "Check the store. Until it answers, "+refused
	switch {
	case errors.Is(err, ErrDenied):
		message, do = "lock: the store denied a call", "Do what the error says. Until then, "+refused
	case errors.Is(err, errors.ErrUnsupported): // the store has answered, and will not answer otherwise
		do = "Do what the error says. Until then such work is refused, even with WithFailOpen."
	}
	l.cfg.logger.LogAttrs(ctx, slog.LevelError, message+"; repetitions are not logged for a minute",
		slog.String("class", class), slog.Any("error", err), slog.Int("repeated", silent),
		attrDo(do))
}

// logServed logs the end of an outage, if the store has answered a claim and there was one. The next outage has lines of
// its own.
func (l *Locker) logServed(ctx context.Context) {
	if failures, took := l.core.outage.succeed(); failures > 0 {
		l.core.logged.Reset()
		l.cfg.logger.LogAttrs(ctx, slog.LevelInfo, "lock: the store serves calls again", slog.Duration("failed_for", took),
			slog.Int("failures", failures), attrDo("Look for requests whose outcome is unknown: package console lists them first."))
	}
}

// logPanic is deferred by calls of the user's functions. It ends a panic, and logs it.
func (l *Locker) logPanic(ctx context.Context, message string, at EventKind) {
	if p := recover(); p != nil {
		l.cfg.logger.LogAttrs(ctx, slog.LevelError, message, slog.Any("panic", p), slog.String("event", string(at)))
	}
}

func attrDo(what string) slog.Attr { return slog.String("do", what) }

// emit reports an event of e to observers.
func (l *Locker) emit(ctx context.Context, e *Lease, kind EventKind, took time.Duration, err error) {
	if len(l.cfg.observers) > 0 {
		l.Report(ctx, e.event(kind, took, err))
	}
}

// emitFailed reports a call to the store that failed with err. err says whether the call may have
// been applied; nil reports nothing.
func (l *Locker) emitFailed(ctx context.Context, e *Lease, call string, took time.Duration, err error) {
	if err == nil || len(l.cfg.observers) == 0 {
		return
	}
	kind := EventUnavailable
	if errors.Is(err, ErrUnknown) {
		kind = EventUnknown
	}
	v := e.event(kind, took, err)
	v.Call, v.Waited = call, 0 // the event of the acquire has its wait
	l.Report(ctx, v)
}

// Report hands e to the observers. It is for packages that decide about a request before they
// claim a key, as package middleware does.
func (l *Locker) Report(ctx context.Context, e Event) {
	for _, o := range l.cfg.observers {
		l.observe(ctx, o, e)
	}
}

func (l *Locker) observe(ctx context.Context, o Observer, e Event) {
	defer l.logPanic(ctx, "lock: an observer panicked", e.Kind)
	o(ctx, e)
}

// event describes e, as events of the kind have it.
func (e *Lease) event(kind EventKind, took time.Duration, err error) Event {
	if errors.Is(err, errReplay) {
		err = nil
	}
	v := Event{Kind: kind, Name: e.name(), Key: e.Key(), Once: e.run != nil, Attempt: e.attempt(), Took: took, Err: err}
	o := e.observed
	if o == nil {
		return v
	}
	switch kind {
	case EventClaimed, EventRecovered, EventResumed:
		v.Took, v.Waited = time.Since(o.began), o.waited
	case EventTakenOver, EventRefused, EventReplayed:
		v.Took, v.Waited, v.Owner = time.Since(o.began), o.waited, o.found
	case EventUnknown, EventUnavailable:
		v.Call, v.Waited = callClaim, o.waited
	case EventReleased, EventSettled, EventHandedOver:
		v.Took, v.Size, v.Left = e.claim.grantedAt.Since(), len(e.end.receipt), max(e.validity.State().Until.Until(), 0)
	case EventRenewed, EventLost, EventReaped, EventBypassed, EventSkipped, EventRejected:
	}
	return v
}
