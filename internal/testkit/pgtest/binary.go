package pgtest

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const noPostgres = `no PostgreSQL server: this test needs a real one (initdb and postgres).
Install it (apt-get install postgresql, brew install postgresql, dnf install postgresql-server)
or set POSTGRES_BIN=/directory/of/both.`

const noBouncer = `no pgbouncer: this test needs a real one.
Install it (apt-get install pgbouncer, brew install pgbouncer, dnf install pgbouncer)
or set PGBOUNCER=/path/to/pgbouncer.`

// places are the directories of the server's programs in packages that do not put them on PATH.
var places = []string{
	"/usr/lib/postgresql/*/bin",          // Debian
	"/usr/pgsql-*/bin",                   // postgresql.org's packages for Red Hat
	"/opt/homebrew/opt/postgresql@*/bin", // Homebrew, Apple silicon
	"/usr/local/opt/postgresql@*/bin",    // Homebrew, Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
}

// serverBinaries finds the directory of initdb and postgres, or ends the test.
func serverBinaries(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("POSTGRES_BIN")
	if dir == "" {
		dir = found()
	}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			testmain.Unavailable(tb, noPostgres, err)
		}
	}
	return dir
}

// found returns the directory of the initdb on PATH, or else of the newest version.
func found() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dir := filepath.Dir(path)
			if _, err = exec.LookPath(filepath.Join(dir, "postgres")); err == nil {
				return dir
			}
		}
	}
	var dirs []string
	for _, place := range places {
		matches, _ := filepath.Glob(place) // the patterns are valid, so there is no error
		dirs = append(dirs, matches...)
	}
	if len(dirs) == 0 {
		return filepath.Dir(places[0]) // the usual directory, for the error message
	}
	return slices.MaxFunc(dirs, func(a, b string) int { return cmp.Compare(majorVersion(a), majorVersion(b)) })
}

var digits = regexp.MustCompile(`\d+`)

// majorVersion returns the number in the directory's name, 0 if there is none.
func majorVersion(dir string) int {
	n, _ := strconv.Atoi(digits.FindString(filepath.Base(filepath.Dir(dir))))
	return n
}

// bouncerBinary finds pgbouncer, or ends the test.
func bouncerBinary(tb testing.TB) string {
	tb.Helper()
	name := os.Getenv("PGBOUNCER")
	if name == "" {
		if path, err := exec.LookPath("/usr/sbin/pgbouncer"); err == nil { // not on every PATH
			return path
		}
		name = "pgbouncer"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		testmain.Unavailable(tb, noBouncer, err)
	}
	return path
}
