package mysqlstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/mysqlstore"
)

func TestKindsOfStatements(t *testing.T) {
	t.Parallel()
	for kind, texts := range map[string][]string{
		"plain": {
			"", "select `commit` from orders", "(SELECT 1) UNION (SELECT 2)", "-- a comment; COMMIT\nSELECT 1;", "SELECT 1 --", "SET @a = 1",
			"INSERT INTO orders VALUES ('COMMIT; ROLLBACK')", `INSERT INTO orders VALUES ("a\");` + " ;\n", // one statement, wherever its text ends
			"ROLLBACK TO SAVEPOINT s", "rollback work to s", "CREATE TEMPORARY TABLE t (n INT)", "CREATE OR REPLACE TEMPORARY TABLE t (n INT)",
			"UPDATE orders SET id = 2-- 1; COMMIT", "SET @a = 1; SELECT `a;b`",
		},
		"unclear": {
			"CALL p()", "EXECUTE p", "LOAD INDEX INTO CACHE orders", "/*!50000 COMMIT */", "/*M! COMMIT */",
			`INSERT INTO orders VALUES ('\'); COMMIT; -- ')`, "SET STATEMENT a = 1 FOR CREATE TABLE o (n INT)",
		},
		"ending": {
			"commit", "/* a */ Commit", "# a\nCOMMIT", "SELECT 1; COMMIT", "INSERT INTO orders VALUES ('a'';'); COMMIT", "UPDATE orders SET id = 2--1; COMMIT",
			"ROLLBACK", "ROLLBACK AND CHAIN", "START TRANSACTION", "LOCK TABLES orders WRITE", "ALTER TABLE t ADD COLUMN c INT",
			"CREATE TABLE temporary (n INT)", "CREATE TABLE IF NOT EXISTS temporary (n INT)", "CREATE OR REPLACE TEMPORARY SEQUENCE s",
			"DROP TABLE temporary_ones", "DROP TABLE IF EXISTS temporary", "SET SESSION autocommit = 1", "SET @@session.autocommit = 1",
			"SET timestamp = 1", "SET @@session.`timestamp` = 1", "/* at */ SET `timestamp` = 1", "SELECT 1; SET `timestamp` = 1", "SET DEFAULT ROLE NONE",
		},
	} {
		for _, text := range texts {
			require.Equal(t, kind, mysqlstore.Kind(text), text)
		}
	}
}
