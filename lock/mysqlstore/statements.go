package mysqlstore

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// statements has the SQL of a store, with $1, $2 ... in the place of values.
type statements struct {
	insert, insertAbsent, replace, renew, settle, release, forget string
	drawFence, fence, dropFence, marked                           string
	get, page, list, ended, remove                                string
	settleInside, lockRow, idle                                   string
	present, presentFences, engine                                string
	writes                                                        []string
}

const (
	// now is the moment at which a statement began, in microseconds since 1970, for any time
	// zone of the session.
	now = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

	// columns are the fields of rowstore.Row.
	columns = `lock_key, token, attempt, fingerprint, owner, fence, settled, receipt, ends_at, over_at`

	live = `over_at > ` + now

	settle = `UPDATE latch_entries SET settled = 1, receipt = $3, ends_at = ` + now + ` + $4, over_at = ` + now + ` + $4
WHERE lock_key = $1 AND token = $2 AND settled = 0`
)

func newStatements(n names) statements {
	list := n.in(`SELECT ` + columns + `, ` + now + ` FROM latch_entries WHERE lock_key > $1 ORDER BY lock_key LIMIT $2`)
	return statements{
		insert: n.in(`INSERT INTO latch_entries (` + columns + `) VALUES ($1)`),
		// If the row is taken, this only reads it, and does not wait for a transaction that settles it.
		insertAbsent: n.in(`INSERT INTO latch_entries (` + columns + `) SELECT $1 FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM latch_entries AS e WHERE e.lock_key = $2)`),
		// A takeover replaces no entry that has ended since it was read.
		replace: n.in(`UPDATE latch_entries SET token = $2, attempt = $3, fingerprint = $4, owner = $5, fence = 0, settled = 0, receipt = NULL,
	ends_at = ` + now + ` + $6, over_at = ` + now + ` + $6 + $7
WHERE lock_key = $1 AND token = $8 AND settled = $9 AND ends_at = $10 AND over_at = $11 AND ($12 OR ` + live + `)`),
		renew: n.in(`UPDATE latch_entries SET over_at = GREATEST(ends_at, ` + now + ` + $3) + GREATEST(over_at - ends_at, $4), ends_at = GREATEST(ends_at, ` + now + ` + $3)
WHERE lock_key = $1 AND token = $2 AND settled = 0 AND ` + live),
		settle:  n.in(settle + ` AND ` + live),
		release: n.in(`DELETE FROM latch_entries WHERE lock_key = $1 AND token = $2 AND settled = 0 AND ` + live),
		forget:  n.in(`DELETE FROM latch_entries WHERE lock_key = $1 AND token = $2 AND ` + live),

		// A table without rows draws the fences: InnoDB gives no number twice, also after a restart.
		drawFence: n.in(`INSERT INTO latch_entries_fence VALUES (NULL)`),
		fence:     n.in(`UPDATE latch_entries SET fence = $3 WHERE lock_key = $1 AND token = $2 AND fence = 0`),
		dropFence: n.in(`DELETE FROM latch_entries_fence WHERE fence = $1`),
		marked:    n.in(`SELECT COUNT(*) > 0 FROM latch_entries_fence WHERE fence = $1`),

		get:    n.in(`SELECT ` + columns + `, ` + now + `, $2 FROM latch_entries WHERE lock_key IN ($1)`),
		list:   list,
		page:   strings.Replace(list, "receipt", "NULL", 1),
		ended:  n.in(`SELECT lock_key, over_at FROM latch_entries WHERE over_at >= $1 AND over_at < $2 ORDER BY over_at LIMIT $3 FOR UPDATE SKIP LOCKED`),
		remove: n.in(`DELETE FROM latch_entries WHERE lock_key IN ($1)`),

		settleInside: n.in(settle),
		lockRow:      n.in(`SELECT token, settled FROM latch_entries WHERE lock_key = $1 FOR UPDATE NOWAIT`),
		// How long a session has been idle, and the error of the value, in milliseconds: 10 for MariaDB,
		// which reads these comments, and 1,000 for MySQL.
		idle: `SELECT /*M! time_ms + 0 * */ 1000 * time, /*M! 0.01 * */ 1000 FROM information_schema.processlist WHERE id = $1 AND user = SUBSTRING_INDEX(USER(), '@', 1) AND command = 'Sleep'`,

		// Check uses all of the tables, and changes no row.
		present:       n.in(`SELECT ` + columns + ` FROM latch_entries LIMIT 0`),
		presentFences: n.in(`SELECT fence FROM latch_entries_fence LIMIT 0`),
		engine:        `SELECT engine FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF($1, ''), DATABASE()) AND table_name = $2`,
		writes: []string{
			n.in(`INSERT INTO latch_entries (` + columns + `) SELECT '', '', 0, '', '', 0, 0, NULL, 0, 0 FROM DUAL WHERE FALSE`),
			n.in(`UPDATE latch_entries SET fence = 0 WHERE lock_key = ''`),
			n.in(`DELETE FROM latch_entries WHERE lock_key = ''`),
			n.in(`INSERT INTO latch_entries_fence SELECT 1 FROM DUAL WHERE FALSE`),
			n.in(`DELETE FROM latch_entries_fence WHERE fence = 0`),
		},
	}
}

// text returns a statement with its values. Bytes are written in hexadecimal digits, so that no
// character set, collation or sql_mode of a session changes them. With the values in the text, the
// driver needs no round trip to prepare the statement.
func text(statement string, values ...any) string {
	return string(appendText(make([]byte, 0, 2*len(statement)+256), statement, values))
}

func appendText(to []byte, statement string, values []any) []byte {
	for {
		at := strings.IndexAny(statement, "$`")
		if at < 0 {
			return append(to, statement...)
		}
		if statement[at] == '`' { // a name, which may have a dollar sign
			at += 2 + strings.IndexByte(statement[at+1:], '`')
			to, statement = append(to, statement[:at]...), statement[at:]
			continue
		}
		to = append(to, statement[:at]...)
		after, n := statement[at+1:], 0
		for ; after != "" && '0' <= after[0] && after[0] <= '9'; after = after[1:] {
			n = 10*n + int(after[0]-'0')
		}
		to, statement = appendValue(to, values[n-1]), after
	}
}

// list is a value that stands for several values.
type list [][]byte

// row has the values of a row, in the order of columns.
const row = `$1, $2, $3, $4, $5, 0, 0, NULL, ` + now + ` + $6, ` + now + ` + $6 + $7`

// expression is a value that the server computes.
type expression string

func appendValue(to []byte, value any) []byte {
	switch v := value.(type) {
	case []byte:
		return append(hex.AppendEncode(append(to, "x'"...), v), '\'')
	case string:
		return appendValue(to, []byte(v))
	case list:
		for i, b := range v {
			if i > 0 {
				to = append(to, ", "...)
			}
			to = appendValue(to, b)
		}
		return to
	case expression:
		return append(to, v...)
	case bool:
		return strconv.AppendBool(to, v)
	case int64:
		return strconv.AppendInt(to, v, 10)
	default:
		return append(to, "NULL"...)
	}
}
