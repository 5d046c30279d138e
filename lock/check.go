package lock

import (
	"context"
	"log/slog"
	"time"

	"github.com/httplatch/httplatch/lock/internal/clock"
	"github.com/httplatch/httplatch/lock/internal/send"
)

const (
	checkEvery    = time.Minute     // while the store is in use: an operator can change a server's settings
	checkPatience = 5 * time.Second // for about ten round trips
)

// startCheck begins the check of the store that is due at the moment at. Claims begin checks, and there is no timer: a
// Locker that is not closed keeps nothing alive.
func (l *Locker) startCheck(at clock.Moment) {
	c := l.core
	due := c.checkDue.Load()
	if int64(at) < due || !c.checkDue.CompareAndSwap(due, int64(at.Add(checkEvery))) {
		return // another claim has begun it
	}
	c.sender.Sends.Enter() // it belongs to a claim, for which Close waits
	go func() {
		defer c.sender.Sends.Leave()
		ctx, cancel := context.WithTimeout(c.closing, checkPatience)
		defer cancel()
		l.logCheck(ctx, func() (err error) {
			defer send.Recover(&err)
			return c.about.Check(ctx)
		}())
	}()
}

// logCheck logs the result of a check if its class has changed. It logs nothing about a check that
// did not reach the server, because other lines report calls that failed.
func (l *Locker) logCheck(ctx context.Context, err error) {
	class := Class(err)
	switch class {
	case "dial", "silent", "connection", "handshake", classCancelled:
		return
	}
	before := *l.core.trouble.Swap(&class)
	switch {
	case class == before:
	case err != nil:
		l.cfg.logger.LogAttrs(ctx, slog.LevelError, "lock: the store failed its check", slog.String("class", class), slog.Any("error", err),
			attrDo("Do what the error says. The store is checked again every minute in which it is used, and the next line follows when the class changes."))
	default:
		l.cfg.logger.LogAttrs(ctx, slog.LevelInfo, "lock: the store has passed its check again", slog.String("class", before))
	}
}
