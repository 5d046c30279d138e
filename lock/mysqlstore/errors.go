package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"

	"github.com/go-sql-driver/mysql"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Numbers of errors of MySQL and MariaDB.
const (
	errNoSuchTable     = 1146
	errBadField        = 1054
	errLockWaitTimeout = 1205
	errDeadlock        = 1213
	errRecordChanged   = 1020 // MariaDB, with innodb_snapshot_isolation
	errNoVariable      = 1193
	errNotReady        = 1047 // Galera; "unknown command" elsewhere, which the driver does not send
	errNoSavepoint     = 1305
	errDuplicate       = 1062
	errLockNowait      = 3572 // MySQL; MariaDB answers with errLockWaitTimeout
)

// The errors whose meaning differs from the meaning of their class.
var (
	denials  = []uint16{1044, 1045, 1049, 1142, 1143, 1227, 1290, 1665, 1698, 1792, 1836}
	noRooms  = []uint16{1021, 1037, 1038, 1041, 1114, 1118, 1153, 1301, 1406}
	readOnly = []uint16{1290, 1792, 1836}
	pass     = []uint16{errLockWaitTimeout, errDeadlock, errRecordChanged, errLockNowait, 1040, errNotReady, 1158, 1159, 1160, 1161, 1180, 1203, 1206, 1226, 1317, 1614, 1927, 1969, 3024, 3101}
	refusals = slices.Concat(denials, noRooms, []uint16{errLockWaitTimeout, errDeadlock, errRecordChanged, errLockNowait, 1040, errNotReady, 1203, 1206, 1226, 1969, 3024, 3101})
)

// storeError converts the error of a statement to an error of [lock.Store], and nil to nil. An
// error answer of the server proves that the statement had no effect, unless the answer is that
// the statement was interrupted: its commit may then have taken effect.
func storeError(err error) error {
	_, committing := errors.AsType[rowstore.CommitError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lock.ErrNotApplied):
		return err
	case isTooLarge(err): // nothing was sent
		return fmt.Errorf("%w: mysqlstore: %w: max_allowed_packet of the server, or maxAllowedPacket of the driver, is smaller: %w", lock.ErrNotApplied, lock.ErrFull, err)
	case !errors.Is(err, errUncommitted) && (committing && !rolledBack(err) || !refused(err)):
		return fmt.Errorf("mysqlstore: %w", classified(err))
	default:
		return fmt.Errorf("%w: mysqlstore: %w", lock.ErrNotApplied, explain(err))
	}
}

// dialError explains why there is no connection.
func dialError(err error) error {
	if number(err) != 0 || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return explain(err)
	}
	return fmt.Errorf("the server cannot be reached: %w", rowstore.Classed(err, "dial"))
}

// classified gives err a class: the number of the server's error, "dial" for a connection that
// was not made, and "connection" for a connection that ended.
func classified(err error) error {
	var network net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err // lock.Class knows them
	case number(err) != 0:
		return rowstore.Classed(err, strconv.Itoa(int(number(err))))
	case errors.As(err, &network), errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return rowstore.Classed(err, "connection")
	default:
		return err
	}
}

// explain adds a cure to an answer of the server, and its meaning to the Locker.
func explain(err error) error {
	n := number(err)
	err = classified(err)
	switch {
	case errors.Is(err, lock.ErrDenied): // already explained
		return err
	case n == errNoSuchTable:
		return fmt.Errorf("%w: the table is not there: call Migrate, or run Schema: %w", lock.ErrDenied, err)
	case n == errBadField:
		return fmt.Errorf("%w: the table lacks a column: it is of another version, or not a store's: compare it with Schema, or name another one by WithTable: %w", lock.ErrDenied, err)
	case n == 1665:
		return fmt.Errorf("%w: the server logs statements: set binlog_format to ROW or MIXED: %w", lock.ErrDenied, err)
	case slices.Contains(readOnly, n):
		return fmt.Errorf("%w: the server cannot be written to: connect to the primary, and if it is one, set read_only to OFF: %w", lock.ErrDenied, err)
	case n == 1142, n == 1143, n == 1044, n == 1227:
		return fmt.Errorf("%w: the user lacks a privilege, which the package's documentation names: %w", lock.ErrDenied, err)
	case slices.Contains(denials, n):
		return fmt.Errorf("%w: %w", lock.ErrDenied, err)
	case slices.Contains(noRooms, n):
		return fmt.Errorf("%w: the server has no room: %w", lock.ErrFull, err)
	default:
		return err
	}
}

// number returns the number of a server's error, 0 if err is of another kind.
func number(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// refused reports whether err is an answer of the server which proves that a statement had no
// effect. An error during the commit of the statement, or the end of the session, proves nothing.
func refused(err error) bool {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	if !ok {
		return false
	}
	switch string(e.SQLState[:2]) {
	case "22", "23", "28", "3D", "40", "42": // data, constraints, users, databases, rolled back, statements and privileges
		return true
	}
	return slices.Contains(refusals, e.Number)
}

// rolledBack reports whether an error that answers a COMMIT says that it was rolled back.
func rolledBack(err error) bool {
	n := number(err)
	return n == errDeadlock || n == 3101 || slices.Contains(readOnly, n)
}

func isDuplicate(err error) bool { return number(err) == errDuplicate }

// isTooLarge reports whether a statement was not sent, because it is larger than a packet.
func isTooLarge(err error) bool { return errors.Is(err, mysql.ErrPktTooLarge) }

// isDemoted reports whether err says that the server, or a node of a Galera cluster, no longer takes
// writes. Another connection to its address may lead to the primary.
func isDemoted(err error) bool {
	n := number(err)
	return slices.Contains(readOnly, n) || n == errNotReady
}

// passes reports whether a statement that was refused may succeed later.
func passes(err error) bool {
	n := number(err)
	return n == 0 || slices.Contains(pass, n) || slices.Contains(noRooms, n) && n != 1406
}
