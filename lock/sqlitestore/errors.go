package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"modernc.org/sqlite"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// Codes of SQLite, without their extensions.
const (
	codeError      = 1
	codeBusy       = 5
	codeLocked     = 6
	codeReadOnly   = 8
	codeIO         = 10
	codeFull       = 13
	codeTooBig     = 18
	codeConstraint = 19
)

// codes has the class of each code for [lock.Class], and its cure, unless the failure passes by
// itself.
var codes = map[int]struct{ class, cure string }{
	3:            {"perm", "the process may not use the files: give its user the file, its directory, and the files beside it"},
	codeBusy:     {"busy", ""},
	codeLocked:   {"busy", ""},
	codeReadOnly: {"readonly", "the process may not write: give its user the file, the files beside it and their directory, and mount the file system for writing"},
	9:            {"interrupt", ""},
	codeIO:       {"ioerr", ""},
	11:           {"corrupt", "stop all processes, and restore the file from a backup, or repair it with the command .recover of the sqlite3 program"},
	codeFull:     {"full", "make room on the file system, or raise PRAGMA max_page_count"},
	14:           {"cantopen", "make the directory, and let the process write to it"},
	26:           {"notadb", "the file is not a database of SQLite, or is encrypted: name another one, or restore it from a backup"},
}

// failure makes the errors of the store.
var failure = rowstore.Errors{Store: "sqlitestore", Answer: answer}

// answer returns the meaning of an error of a call. A failed call had no effect, except a COMMIT that
// has failed with an error of the disk: after a crash before the next write, its changes may be there.
func answer(err error) (is rowstore.Answer) {
	of := codes[code(err)]
	is.Class, is.Cure = of.class, of.cure
	is.Refused = !errors.Is(err, rowstore.ErrCommit) || code(err) != codeIO
	switch {
	case noTable(err):
		is.Cure = rowstore.NoTable
	case code(err) == codeError && strings.Contains(err.Error(), "no such column"):
		is.Cure = rowstore.NoColumn
	}
	switch {
	case code(err) == codeFull:
		is.Means = lock.ErrFull
	case is.Cure != "", errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		is.Means = lock.ErrDenied
	}
	return is
}

// code returns the code of an error of SQLite, 0 if it is of another kind.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

func busy(err error) bool { c := code(err); return c == codeBusy || c == codeLocked }

func noTable(err error) bool {
	return code(err) == codeError && strings.Contains(err.Error(), "no such table")
}

var (
	errNoWAL = fmt.Errorf("%w: the database is not in WAL mode: run PRAGMA journal_mode = WAL, or call Migrate; "+
		"a file system of the network has none: use a local one", lock.ErrDenied)
	errDriver = fmt.Errorf("%w: New needs a *sql.DB of modernc.org/sqlite, sql.Open(\"sqlite\", file)", lock.ErrDenied)
)

// hangs returns the error of a call whose caller leaves before the disk has answered.
func hangs(ctx context.Context) error {
	return fmt.Errorf("sqlitestore: the disk has not answered: %w", context.Cause(ctx))
}
