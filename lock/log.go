package lock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/internal/ratelog"
	"github.com/httplatch/httplatch/internal/requestinfo"
	"github.com/httplatch/httplatch/lock/internal/send"
)

// reporter logs the lines that an operator must see.
type reporter struct {
	logger *slog.Logger
	logged *ratelog.Log
	outage *outage
}

// log writes a line about the key of a lease, without the key. key_sha256 is the beginning of the
// name under which a store keeps a record of Once. The name is not secret. The value of "console",
// appended to the address of package console, is the link to the record.
func (l *reporter) log(ctx context.Context, level slog.Level, message string, of *identity, attrs ...slog.Attr) {
	which := []slog.Attr{slog.String("name", of.name()), slog.String("key_sha256", keytext.Digest(of.label()))}
	if of.record != nil {
		which = append(which, slog.String("console", "?key="+string(of.entry)))
	}
	l.logger.LogAttrs(ctx, level, message, append(which, attrs...)...)
}

// logLost reports work that goes on, or went on, without its lease.
func (l *reporter) logLost(ctx context.Context, of *identity, held time.Duration, lost error) {
	do := ""
	if why, ok := errors.AsType[*loss](lost); ok {
		do = why.do
	}
	attrs := []slog.Attr{slog.Any("error", lost), slog.Duration("held", held), attrDo(do)}
	if of.record == nil { // package console finds a key by its hash
		attrs = append(attrs, slog.String("console", "?q="+keytext.Digest(of.label())))
	}
	l.log(ctx, slog.LevelError, "lock: lease lost before its work had ended", of, attrs...)
}

// logRefused reports a key that no caller gets until an operator has examined its entry.
func (l *reporter) logRefused(ctx context.Context, of *identity, err error) {
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || of.record == nil || !errors.Is(err, ErrAbandoned) {
		return
	}
	// A class for each first digit of the hash: the line of one customer does not hide the
	// line of another, and there are at most 16 a minute.
	class := "abandoned " + keytext.Digest(of.label())[:1]
	l.logSeldom(ctx, of, class, "a key is refused because its holder has vanished",
		"Check that the holder has ended, and whether its work took effect. If it did not, free the entry (package console, or Inspector.Forget); "+
			"if it did, leave the entry. The key is refused meanwhile, unless WithRerunAbandoned is set.",
		slog.String("owner", requestinfo.Process(refused.Entry.Owner)))
}

// logPossibleEffect reports work that failed after a call elsewhere whose outcome is unknown.
func (l *reporter) logPossibleEffect(ctx context.Context, of *identity) {
	l.logSeldom(ctx, of, "doubtful "+keytext.Digest(of.label())[:1], "work has failed after a request to another service that may have had an effect",
		"Check whether the request had an effect. If it had none, free the entry (package console, or Inspector.Forget); if it had, leave the entry. "+
			"Repeats are refused meanwhile.")
}

// logTakenOver reports work that may already have had its effect.
func (l *reporter) logTakenOver(ctx context.Context, of *identity) {
	l.log(ctx, slog.LevelWarn, "lock: work whose holder has vanished runs again", of, slog.Int("attempt", of.attempt()),
		attrDo("Check whether the work took effect twice. Check also why the first process ended."))
}

// logBypassed reports work that runs unprotected.
func (l *reporter) logBypassed(ctx context.Context, of *identity, err error) {
	l.logSeldom(ctx, of, "bypassed", "work runs unprotected, as WithFailOpen allows",
		"Check the store. Until it answers, duplicates that reach other processes are not refused.", slog.Any("error", err))
}

// logNoRoom reports an answer that will not be replayed, because the store has no room for it.
func (l *reporter) logNoRoom(ctx context.Context, of *identity, size int, err error) {
	l.logSeldom(ctx, of, "no room", "the store has no room for a receipt, and keeps only that the work was done",
		"Give the store more room (WithLimits), or keep less: shorter answers, a shorter WithKeep. "+
			"Until then repeats of such work learn only that it was done.",
		slog.Int("bytes", size), slog.Any("error", err))
}

// logBacklogFull reports an answer that will not be replayed, because too many receipts wait for
// the store.
func (l *reporter) logBacklogFull(ctx context.Context, of *identity, size int, backlog int64) {
	l.logSeldom(ctx, of, "backlog", "receipts that wait for the store fill their room in memory, and further ones are dropped",
		"Check the store, which does not answer. Until it does, repeats of such work learn only that it was done.",
		slog.Int("bytes", size), slog.Int64("backlog_bytes", backlog))
}

// logAborted reports work that was rolled back, and would be rolled back again.
func (l *reporter) logAborted(ctx context.Context, of *identity, err error) {
	l.logSeldom(ctx, of, "aborted", "work was rolled back because its transaction could not be committed",
		"Have the work return an error when a statement of its transaction has failed, or make such statements in a savepoint. "+
			"Leave the end of the transaction to the Locker.", slog.Any("error", err))
}

// logDropped reports a clean-up that was given up for a newer one.
func (l *reporter) logDropped(ctx context.Context, backlog int) {
	l.logSeldom(ctx, nil, "clean-up dropped", "a clean-up was given up for a newer one",
		"Check the store, which answers too few calls. An entry that is left refuses other processes until its lease is over; "+
			"an entry of Once then says that its outcome is unknown.",
		slog.Int("backlog", backlog))
}

// logSeldom writes a warning, about the key of a lease unless of is nil. Every request may cause
// the same warning, so each class is written at most once a minute.
func (l *reporter) logSeldom(ctx context.Context, of *identity, class, message, do string, attrs ...slog.Attr) {
	due, silent := l.logged.Due(class)
	if !due {
		return
	}
	message = "lock: " + message + "; others are not logged for a minute"
	if attrs = append(attrs, slog.Int("repeated", silent), attrDo(do)); of == nil {
		l.logger.LogAttrs(ctx, slog.LevelWarn, message, attrs...)
	} else {
		l.log(ctx, slog.LevelWarn, message, of, attrs...)
	}
}

// logFailure logs a failure of the store: the first of an outage, and each class at most once a minute.
func (l *reporter) logFailure(ctx context.Context, err error) {
	class := Class(err)
	if class == classCancelled {
		return
	}
	first := !errors.Is(err, errors.ErrUnsupported) && l.outage.fail()
	due, silent := l.logged.Due(class)
	if !due && !first {
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
	l.logger.LogAttrs(ctx, slog.LevelError, message+"; repetitions are not logged for a minute",
		slog.String("class", class), slog.Any("error", err), slog.Int("repeated", silent),
		attrDo(do))
}

// logServed logs the end of an outage: the store has answered a claim.
func (l *reporter) logServed(ctx context.Context) {
	if !l.outage.on.Load() {
		return
	}
	if took, over := l.outage.succeed(); over {
		l.logger.LogAttrs(ctx, slog.LevelInfo, "lock: the store serves calls again", slog.Duration("failed_for", took),
			attrDo("Look for requests whose outcome is unknown: package console lists them first."))
	}
}

// logPanic is deferred by calls of observers. It ends a panic, and logs it.
func (l *reporter) logPanic(ctx context.Context, kind EventKind) {
	if p := recover(); p != nil {
		l.logger.LogAttrs(ctx, slog.LevelError, "lock: an observer panicked", slog.Any("panic", p), slog.String("event", string(kind)))
	}
}

// contained returns l with a handler whose panics cost no more than their lines.
func contained(l *slog.Logger) *slog.Logger { return slog.New(containedHandler{l.Handler()}) }

type containedHandler struct{ slog.Handler }

// Handle is part of [slog.Handler].
func (h containedHandler) Handle(ctx context.Context, r slog.Record) (err error) {
	defer send.Recover(&err)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is part of [slog.Handler].
func (h containedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return containedHandler{h.Handler.WithAttrs(attrs)}
}

// WithGroup is part of [slog.Handler].
func (h containedHandler) WithGroup(name string) slog.Handler {
	return containedHandler{h.Handler.WithGroup(name)}
}

func attrDo(what string) slog.Attr { return slog.String("do", what) }
