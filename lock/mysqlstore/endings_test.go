package mysqlstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/mysqlstore"
)

func TestKindsOfStatements(t *testing.T) {
	t.Parallel()
	for text, kind := range map[string]string{
		"INSERT INTO orders VALUES ('COMMIT; ROLLBACK')": "plain",
		"(SELECT 1) UNION (SELECT 2)":                    "plain",
		"-- a comment; COMMIT\nSELECT 1;":                "plain",
		"select `commit` from orders":                    "plain",
		"ROLLBACK TO SAVEPOINT s":                        "plain",
		"rollback work to s":                             "plain",
		"CREATE TEMPORARY TABLE t (n INT)":               "plain",
		"CREATE OR REPLACE TEMPORARY TABLE t (n INT)":    "plain",
		`INSERT INTO orders VALUES ("a\");` + " ;\n":     "plain", // one statement, wherever its text ends
		"SET @a = 1":         "plain",
		"":                   "plain",
		"CALL p()":           "unclear",
		"EXECUTE p":          "unclear",
		"/*!50000 COMMIT */": "unclear",
		"/*M! COMMIT */":     "unclear",
		`INSERT INTO orders VALUES ('\'); COMMIT; -- ')`: "unclear",
		"commit":           "ending",
		"/* a */ Commit":   "ending",
		"# a\nCOMMIT":      "ending",
		"SELECT 1; COMMIT": "ending",
		"INSERT INTO orders VALUES ('a'';'); COMMIT": "ending",
		"ROLLBACK":                       "ending",
		"START TRANSACTION":              "ending",
		"ALTER TABLE t ADD COLUMN c INT": "ending",
		"DROP TABLE temporary_ones":      "ending",
		"SET SESSION autocommit = 1":     "ending",
		"SET @@autocommit = 1":           "ending",
		"SET @@session.autocommit = 1":   "ending",
		"SET timestamp = 1":              "ending",
		"SET @@session.`timestamp` = 1":  "ending",
		"/* at */ SET `timestamp` = 1":   "ending",
		"SELECT 1; SET `timestamp` = 1":  "ending",
		"SET @a = 1; SELECT `a;b`":       "unclear",
		"LOCK TABLES orders WRITE":       "ending",

		"CREATE TABLE temporary (n INT)":                 "ending",
		"CREATE OR REPLACE TEMPORARY SEQUENCE s":         "ending",
		"CREATE TABLE IF NOT EXISTS temporary (n INT)":   "ending",
		"DROP TABLE IF EXISTS temporary":                 "ending",
		"ROLLBACK AND CHAIN":                             "ending",
		"SET DEFAULT ROLE NONE":                          "ending",
		"SET STATEMENT a = 1 FOR CREATE TABLE o (n INT)": "unclear",
		"UPDATE orders SET id = 2--1; COMMIT":            "ending",
		"UPDATE orders SET id = 2-- 1; COMMIT":           "plain",
		"SELECT 1 --":                                    "plain",
		"LOAD INDEX INTO CACHE orders":                   "unclear",
	} {
		require.Equal(t, kind, mysqlstore.Kind(text), text)
	}
}
