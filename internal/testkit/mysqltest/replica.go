package mysqltest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// Replicated returns the settings of a server of MariaDB that is a primary or a replica. Each
// server of a pair has its own number.
func Replicated(id int, settings ...string) []string {
	return append([]string{
		fmt.Sprintf("server-id=%d", id), "log-bin=log", "log-slave-updates", "binlog-format=ROW", "gtid-strict-mode=ON", "innodb-log-file-size=16M",
	}, settings...)
}

// SemiSynchronous returns the settings of both servers with which a COMMIT waits for the replica
// before other sessions see it, without a timeout. It waits where rpl_semi_sync_master_enabled is
// ON. Set it on the primary only: a replica would wait for a replica of its own.
func SemiSynchronous() []string {
	return []string{"rpl-semi-sync-slave-enabled=ON", "rpl-semi-sync-master-wait-point=AFTER_SYNC", "rpl-semi-sync-master-timeout=3600000"}
}

// Configure replaces the settings of [Start] when s is started again.
func (s *Server) Configure(settings ...string) { s.settings = settings }

// User makes a user without a password on s only. The user has all rights in a database, and may
// not write to a replica.
func (s *Server) User(tb testing.TB, name, db string) {
	tb.Helper()
	s.Exec(tb, "", fmt.Sprintf("SET sql_log_bin = 0; CREATE USER %[1]s@'127.0.0.1'; GRANT ALL ON %[2]s.* TO %[1]s@'127.0.0.1'", name, db))
}

// Follow makes s a replica of primary, which it reaches at addr. It starts with data of a new
// server and a copy of one database. Only root may write to it until Promote.
func (s *Server) Follow(tb testing.TB, primary *Server, addr, db string) {
	tb.Helper()
	s.Kill()
	err := os.RemoveAll(s.data())
	if err == nil {
		err = s.install()
	}
	if err != nil {
		tb.Fatal(err)
	}
	s.Restart(tb)
	dump := filepath.Join(s.Dir, "dump.sql")
	program, err := s.programs.look("mariadb-dump")
	if err == nil {
		err = s.command(program, "--no-defaults", "--socket="+primary.socket(), "--user=root", "--single-transaction", "--master-data=1", "--gtid", "--databases", db, "--result-file="+dump)
	}
	if err != nil {
		tb.Fatal(err)
	}
	host, port, _ := net.SplitHostPort(addr)                                        // it has one
	s.Exec(tb, "", "SET GLOBAL read_only = ON; SET sql_log_bin = 0;\nSOURCE "+dump) // a command of the client needs its own line
	s.Exec(tb, "", fmt.Sprintf("CHANGE MASTER TO master_host = '%s', master_port = %s, master_user = 'root', master_connect_retry = 1, master_use_gtid = slave_pos; START SLAVE", host, port))
}

// AwaitReplica returns when a replica follows s and has all commits of s.
func (s *Server) AwaitReplica(tb testing.TB, replica *Server) {
	tb.Helper()
	if !process.Eventually(func() bool {
		ahead, err := s.query("SELECT @@gtid_binlog_pos")
		if err != nil {
			return false
		}
		behind, err := replica.query("SELECT @@gtid_slave_pos")
		return err == nil && ahead == behind
	}) {
		status, _ := replica.query("SHOW SLAVE STATUS\\G")
		tb.Fatalf("mysqltest: the replica does not follow: %s", status)
	}
}

// Promote makes a replica a primary, after it has applied everything that it has received.
// statements are executed before other users can write.
func (s *Server) Promote(tb testing.TB, statements string) {
	tb.Helper()
	s.Exec(tb, "", "STOP SLAVE IO_THREAD")
	if !process.Eventually(func() bool {
		status, err := s.query("SHOW SLAVE STATUS\\G")
		return err == nil && strings.Contains(status, "Slave has read all relay log")
	}) {
		status, _ := s.query("SHOW SLAVE STATUS\\G")
		tb.Fatalf("mysqltest: the replica does not apply what it was sent: %s", status)
	}
	s.Exec(tb, "", "STOP SLAVE; RESET SLAVE ALL; "+statements+"; SET GLOBAL read_only = OFF")
}

// query returns the answer to a query, as the client prints it.
func (s *Server) query(sql string) (string, error) {
	return s.output(s.programs.client, "--no-defaults", "--socket="+s.socket(), "--user=root", "--skip-column-names", "--batch", "--execute="+sql)
}
