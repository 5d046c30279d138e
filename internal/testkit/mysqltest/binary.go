package mysqltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const noServer = `no MariaDB or MySQL server: this test needs a real one (mariadbd and mariadb-install-db, or mysqld).
Install it (apt-get install mariadb-server, brew install mariadb, dnf install mariadb-server)
or set MYSQL_SERVER=/path/to/mariadbd or /path/to/mysqld.`

// programs are the programs of a server.
type programs struct {
	server  string
	install string // mariadb-install-db; "" for MySQL, whose server makes its own data
	client  string
}

// find finds the programs, or ends the test.
func find(tb testing.TB) programs {
	tb.Helper()
	p, err := found()
	if err != nil {
		testmain.Unavailable(tb, noServer, err)
	}
	return p
}

func found() (p programs, err error) {
	names := []string{"mariadbd", "/usr/sbin/mariadbd", "mysqld", "/usr/sbin/mysqld"} // not on every PATH
	if name := os.Getenv("MYSQL_SERVER"); name != "" {
		names = []string{name}
	}
	if p.server, err = look(names...); err != nil {
		return p, err
	}
	beside := func(name string) string { return filepath.Join(filepath.Dir(p.server), name) }
	if p.client, err = look(beside("mariadb"), beside("mysql"), "mariadb", "mysql"); err != nil {
		return p, err
	}
	if filepath.Base(p.server) == "mariadbd" {
		p.install, err = look(beside("mariadb-install-db"), "mariadb-install-db")
	}
	return p, err
}

// look returns the path of the first program that exists.
func look(names ...string) (string, error) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("mysqltest: %w: none of %q", errors.ErrUnsupported, names)
}
