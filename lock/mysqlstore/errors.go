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

// failure makes the errors of the store.
var failure = rowstore.Errors{Store: "mysqlstore", Answer: answer}

const (
	lacksPrivilege = "the user lacks a privilege, which the package's documentation names"
	logsStatements = "the server logs statements: set binlog_format to ROW or MIXED"
	isReadOnly     = "the server cannot be written to: connect to the primary, and if it is one, set read_only to OFF"
)

// cures has the cures of errors. The others of their class have none.
var cures = map[uint16]string{
	errNoSuchTable: rowstore.NoTable, errBadField: rowstore.NoColumn, 1665: logsStatements,
	1290: isReadOnly, 1792: isReadOnly, 1836: isReadOnly, 1142: lacksPrivilege, 1143: lacksPrivilege, 1044: lacksPrivilege, 1227: lacksPrivilege,
}

// answer returns the meaning of an error of a statement. An error answer of the server proves that the
// statement had no effect, unless the answer is that the statement was interrupted: its commit may
// then have taken effect.
func answer(err error) (is rowstore.Answer) {
	n := number(err)
	is.Refused = isTooLarge(err) || errors.Is(err, errUncommitted) || refused(err) && (!errors.Is(err, rowstore.ErrCommit) || rolledBack(err))
	switch is.Cure = cures[n]; {
	case isTooLarge(err): // nothing was sent
		is.Means, is.Cure = lock.ErrFull, "max_allowed_packet of the server, or maxAllowedPacket of the driver, is smaller"
	case slices.Contains(noRooms, n):
		is.Means, is.Cure = lock.ErrFull, "the server has no room"
	case is.Cure != "", slices.Contains(denials, n):
		is.Means = lock.ErrDenied
	}
	_, network := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // no class
	case n != 0:
		is.Class = strconv.Itoa(int(n))
	case network, errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		is.Class = "connection"
	}
	return is
}

// dialError explains why there is no connection.
func dialError(err error) error {
	if number(err) != 0 || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return failure.Explain(err)
	}
	return fmt.Errorf("the server cannot be reached: %w", rowstore.Classed(err, "dial"))
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
