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
	base    string // where its package is
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
	if p.server, err = filepath.EvalSymlinks(p.server); err != nil {
		return p, fmt.Errorf("mysqltest: %w", err)
	}
	p.base = filepath.Dir(filepath.Dir(p.server))
	if p.client, err = p.look("mariadb", "mysql"); err != nil {
		return p, err
	}
	if filepath.Base(p.server) == "mariadbd" {
		p.install, err = p.look("mariadb-install-db")
	}
	return p, err
}

// look returns the path of a program of the server's package, or else of one on PATH.
func (p programs) look(names ...string) (string, error) {
	var all []string
	for _, name := range names {
		all = append(all, filepath.Join(p.base, "bin", name))
	}
	return look(append(all, names...)...)
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
