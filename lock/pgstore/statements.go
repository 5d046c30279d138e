package pgstore

// statements are those of a store. All that is not an answer's text is a parameter.
type statements struct {
	claim, takeover, renew, settle, settled, release, get string
	list, page, forget, sweep, lacking, present           string
	settleInside, outcome, end, fence                     string
}

const (
	// live is whether a row that is locked stands for an entry, at this moment.
	live = `(e.ends_at + e.linger * interval '1 microsecond' > clock_timestamp())`

	// wasLive is the same of a row that is only read. What is read is as it was when the
	// statement began: by a later clock, an entry that was renewed since would be over.
	wasLive = `(e.ends_at + e.linger * interval '1 microsecond' > statement_timestamp())`

	// columns are what an entry is read from: see scanEntry.
	columns = head + `(extract(epoch FROM e.ends_at - statement_timestamp()) * 1000000)::bigint`
	head    = `e.token, e.receipt IS NOT NULL, e.attempt, e.fingerprint, e.owner, e.fence, e.linger, `

	// granted is columns of a claim of this moment, which has all of its lease.
	granted = head + `$6::bigint`

	// after is the moment that is $n microseconds from now.
	after = `clock_timestamp() + `
)

// quick keeps the answer from waiting for the disk, where $n says so.
func quick(param string) string {
	return `CASE WHEN ` + param + `::bool THEN set_config('synchronous_commit', 'off', true) END`
}

func newStatements(n names) (s statements) {
	s.claims(n)
	s.ends(n)
	s.looks(n)
	s.inside(n)
	return s
}

// claims are those by which a key is taken and kept.
func (s *statements) claims(n names) {
	// What the snapshot shows as taken is only read: a row that a claim locks in vain
	// would be written, too. What is taken in between is left alone by the WHERE of the
	// conflict, and reported as it was.
	s.claim = n.in(`
WITH old AS (SELECT * FROM latch_entries e WHERE key = $1),
claimed AS (
	INSERT INTO latch_entries AS e (key, token, attempt, fingerprint, owner, fence, ends_at, linger, receipt, sweep_at)
	SELECT $1::bytea, $2::bytea, $3::int, $4::bytea, $5::bytea, 0,
		` + after + `$6::bigint * interval '1 microsecond', $7::bigint, NULL, ` + after + `($6::bigint + $7::bigint) * interval '1 microsecond'
	WHERE NOT EXISTS (SELECT FROM old e WHERE ` + wasLive + `)
	ON CONFLICT (key) DO UPDATE SET token = EXCLUDED.token, attempt = EXCLUDED.attempt, fingerprint = EXCLUDED.fingerprint,
		owner = EXCLUDED.owner, fence = EXCLUDED.fence, ends_at = EXCLUDED.ends_at, linger = EXCLUDED.linger,
		receipt = NULL, sweep_at = EXCLUDED.sweep_at
	WHERE NOT ` + live + `
	RETURNING *)
SELECT ` + granted + `, e.receipt, ` + quick("$8") + ` FROM claimed e
UNION ALL
SELECT ` + columns + `, e.receipt, NULL FROM old e WHERE NOT EXISTS (SELECT FROM claimed)`)

	s.fence = n.in(`UPDATE latch_entries SET fence = nextval('latch_entries_fence') WHERE key = $1 AND token = $2 AND fence = 0 RETURNING fence`)

	s.takeover = n.in(`
WITH old AS (SELECT * FROM latch_entries e WHERE key = $1),
claimed AS (
	UPDATE latch_entries e SET token = $2::bytea, attempt = $3::int, fingerprint = $4::bytea, owner = $5::bytea,
		fence = CASE WHEN $8::bool THEN nextval('latch_entries_fence') ELSE 0 END,
		ends_at = ` + after + `$6::bigint * interval '1 microsecond', linger = $7::bigint, sweep_at = ` + after + `($6::bigint + $7::bigint) * interval '1 microsecond'
	WHERE key = $1 AND token = $9 AND receipt IS NULL AND ends_at <= clock_timestamp() AND ` + live + `
	RETURNING *)
SELECT ` + granted + `, e.receipt, NULL FROM claimed e
UNION ALL
SELECT ` + columns + `, e.receipt, NULL FROM old e WHERE NOT EXISTS (SELECT FROM claimed)`)

	s.renew = n.in(`
UPDATE latch_entries e SET ends_at = greatest(ends_at, ` + after + `$3::bigint * interval '1 microsecond'), linger = greatest(linger, $4::bigint)
WHERE key = $1 AND token = $2 AND receipt IS NULL AND ` + live + `
RETURNING ` + quick("$5"))
}

// ends are those by which a key is given up, and by which receipts go.
func (s *statements) ends(n names) {
	s.settle = n.in(`
UPDATE latch_entries e SET receipt = $3::bytea, linger = 0, ends_at = ` + after + `$4::bigint * interval '1 microsecond', sweep_at = ` + after + `$4::bigint * interval '1 microsecond'
WHERE key = $1 AND token = $2 AND receipt IS NULL AND ` + live + `
RETURNING 1`)

	s.settled = n.in(`SELECT 1 FROM latch_entries e WHERE key = $1 AND token = $2 AND receipt IS NOT NULL AND ` + wasLive)

	s.release = n.in(`
DELETE FROM latch_entries e WHERE key = $1 AND token = $2 AND receipt IS NULL
RETURNING ` + live + `, ` + quick("true"))

	s.forget = n.in(`DELETE FROM latch_entries e WHERE key = $1 AND token = $2 RETURNING ` + live)

	// A row that was renewed since is looked at again when it ends. Rows are named by
	// where they are, which needs no join: one would read the whole of a small table.
	s.sweep = n.in(`
WITH due AS (SELECT ctid FROM latch_entries WHERE sweep_at <= now() ORDER BY sweep_at LIMIT $1 FOR UPDATE SKIP LOCKED),
over AS (DELETE FROM latch_entries e WHERE e.ctid = ANY (ARRAY(SELECT ctid FROM due)) AND NOT ` + live + ` RETURNING 1),
kept AS (UPDATE latch_entries e SET sweep_at = e.ends_at + e.linger * interval '1 microsecond'
	WHERE e.ctid = ANY (ARRAY(SELECT ctid FROM due)) AND ` + live + ` RETURNING 1)
SELECT (SELECT count(*) FROM over), ` + quick("true"))
}

// looks are those that change nothing.
func (s *statements) looks(n names) {
	s.get = n.in(`SELECT ` + columns + `, e.receipt FROM latch_entries e WHERE key = $1`)

	s.list = n.in(`SELECT e.key, ` + columns + `, e.receipt FROM latch_entries e WHERE key > $1 ORDER BY key LIMIT $2`)

	s.page = n.in(`SELECT e.key, ` + columns + `, NULL::bytea FROM latch_entries e WHERE key > $1 ORDER BY key LIMIT $2`)

	s.lacking = n.in(`
SELECT quote_ident(current_user),
	ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p WHERE NOT has_table_privilege('latch_entries'::regclass, p)),
	NOT has_sequence_privilege('latch_entries_fence'::regclass, 'USAGE')`)

	s.present = n.in(`
SELECT key, token, attempt, fingerprint, owner, fence, ends_at, linger, receipt, sweep_at FROM latch_entries LIMIT 0`)
}

// inside are those of a transaction of work.
func (s *statements) inside(n names) {
	s.settleInside = n.in(`
WITH settled AS (
	UPDATE latch_entries e SET receipt = $3::bytea, linger = 0, ends_at = ` + after + `$4::bigint * interval '1 microsecond', sweep_at = ` + after + `$4::bigint * interval '1 microsecond'
	WHERE key = $1 AND token = $2 AND receipt IS NULL
	RETURNING pg_current_xact_id()::text AS xid, e.xmin::text AS mark)
SELECT xid, mark, set_config('idle_in_transaction_session_timeout', $5, true) FROM settled`)

	// The entry says what became of the transaction, and not its number alone: a server
	// that crashed may give the number of a transaction that it has lost to another one.
	// As long as the entry as it was before names the transaction as the one that has
	// replaced it, the number is that transaction's. In a savepoint that the work has left open
	// it is named by another number: the mark.
	s.outcome = n.in(`
SELECT e.receipt IS NOT NULL, CASE WHEN e.xmax::text = $4 THEN pg_xact_status($3::text::xid8) END
FROM latch_entries e WHERE key = $1 AND token = $2`)

	// The session is looked up by what it is doing: to ask it who it is would cost every
	// settle more than all else that it does, since statistics are copied for that.
	s.end = `
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_xid = $1::text::xid8::xid`
}
