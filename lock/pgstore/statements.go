package pgstore

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// statements has the SQL of a store.
type statements struct {
	claim, lock, takeover, reclaim, fence string
	renew, note, settle, settled, amend   string
	release, releaseTaken, forget, sweep  string
	get, getNoted, page, claimSet, getSet string
	lacking, present, takeAway, location  string
	idle, endIdle                         string
}

const (
	// live tests whether a locked row is an entry at this moment.
	live = `(e.ends_at + e.linger * interval '1 microsecond' > clock_timestamp())`

	// wasLive tests the same for a row that is only read. The row has its state at the beginning of
	// the statement, so the clock has to show the same moment: by a later clock, an entry that was
	// renewed meanwhile would be over.
	wasLive = `(e.ends_at + e.linger * interval '1 microsecond' > statement_timestamp())`

	// noteKey is the key of the note of a claim. It names the end of the claim's lease, so that it is
	// the note of no other claim of the same token. A receipt has none.
	noteKey = `CASE WHEN e.receipt IS NULL THEN e.key || ':'::bytea || e.token || timestamptz_send(e.ends_at) END`

	// after computes the moment $n microseconds from now.
	after = `clock_timestamp() + `
)

// noted returns an expression over the note n of a claim, NULL if it has none. A note has the end of
// the lease, and the linger, as the renewals and lock.Commit have left them. Its token is empty.
//
// A transaction of work may have its snapshot before a renewal, and PostgreSQL does not let it
// change a row that has changed since. So the row of a record's claim stays as it is until the claim
// ends. A renewal locks it and writes the note. A claim that takes it over locks it in a statement of
// its own, so that the next statement sees each note that was confirmed.
func noted(expression string) string {
	return `(SELECT ` + expression + ` FROM latch_entries n WHERE n.key = ` + noteKey + `)`
}

// leaseEnd is the end of a claim's lease.
var leaseEnd = `coalesce(` + noted(`n.ends_at`) + `, e.ends_at)`

// alive tests whether a claim has not ended, by itself or by its note, at the moment now. For a
// statement that may have waited for the row since it has read the note, that is its beginning.
func alive(now string) string {
	return `(e.ends_at + e.linger * interval '1 microsecond' > ` + now + ` OR coalesce(` +
		noted(`n.ends_at + n.linger * interval '1 microsecond' > `+now) + `, false))`
}

// columns returns the columns of scanEntry. Their times count from the first message of the query: Bind decides the
// row, and statement_timestamp is the moment of Execute, which may arrive much later.
func columns(linger, endsAt string) string {
	return `e.token, e.receipt IS NOT NULL, abs(e.attempt), e.fingerprint, e.owner, e.fence, ` + linger +
		`, (extract(epoch FROM ` + endsAt + ` - now()) * 1000000)::bigint`
}

// quick makes the server answer before its write is on disk, if the parameter is true.
func quick(param string) string {
	return `CASE WHEN ` + param + `::bool THEN set_config('synchronous_commit', 'off', true) END`
}

// confirmed is a write that changes nothing, so that the reader of a receipt waits for the standby
// as a COMMIT does. Without it, a reader can see a receipt that the standby does not have: after
// a crash of the primary, or after an operator has ended the wait of a COMMIT.
const confirmed = `CASE WHEN e.receipt IS NOT NULL AND current_setting('synchronous_standby_names') <> '' ` +
	`THEN pg_logical_emit_message(true, 'latch', '')::text END`

// A statement that has to fail casts one of these texts to a number or a truth value: SQL has no other
// way to fail, unless a function is installed. The text is in the error, and so in the server's log.
const (
	noClaim = "latch: the claim is gone, so its work is not committed"
	notAll  = "latch: some keys of the set were taken meanwhile"
)

// raised reports whether a statement has failed with one of these texts.
func raised(err error, text string) bool {
	answered, ok := errors.AsType[*pgconn.PgError](err)
	return ok && answered.Code == "22P02" && strings.Contains(answered.Message, text)
}

func newStatements(n names) statements {
	replace := `
UPDATE latch_entries e SET token = $2::bytea, attempt = $3::int, fingerprint = $4::bytea, owner = $5::bytea,
	fence = CASE WHEN $10::bool THEN nextval('latch_entries_fence') ELSE 0 END, ends_at = ` + after + `$6::bigint * interval '1 microsecond',
	linger = $7::bigint, sweep_at = ` + after + `($6::bigint + $7::bigint + $9::bigint) * interval '1 microsecond'
WHERE key = $1 AND receipt IS NULL AND `
	plain, withNote := columns(`e.linger`, `e.ends_at`), columns(`coalesce(`+noted(`n.linger`)+`, e.linger)`, leaseEnd)
	get := func(columns string) string {
		return n.in(`SELECT ` + confirmed + `, ` + columns + `, e.receipt FROM latch_entries e WHERE key = $1`)
	}
	const idle = ` FROM pg_stat_activity WHERE pid = $1::bigint AND usename = current_user AND state <> 'idle' AND wait_event = 'ClientRead'`
	return statements{
		// The claim does not lock a row that its snapshot shows as taken: locking a row writes to it.
		// The WHERE of the conflict leaves a row unchanged that was taken after the snapshot. A
		// granted claim returns a row. After a refused claim, get reads the entry: one statement for
		// both would cost the server a quarter more time. An unsettled row is taken by reclaim only.
		claim: n.in(`
INSERT INTO latch_entries AS e (key, token, attempt, fingerprint, owner, fence, ends_at, linger, receipt, sweep_at)
SELECT $1::bytea, $2::bytea, $3::int, $4::bytea, $5::bytea, 0,
	` + after + `$6::bigint * interval '1 microsecond', $7::bigint, NULL, ` + after + `($6::bigint + $7::bigint + $9::bigint) * interval '1 microsecond'
WHERE NOT EXISTS (SELECT FROM latch_entries e WHERE key = $1 AND (receipt IS NULL OR ` + wasLive + `))
ON CONFLICT (key) DO UPDATE SET token = EXCLUDED.token, attempt = EXCLUDED.attempt, fingerprint = EXCLUDED.fingerprint,
	owner = EXCLUDED.owner, fence = EXCLUDED.fence, ends_at = EXCLUDED.ends_at, linger = EXCLUDED.linger,
	receipt = NULL, sweep_at = EXCLUDED.sweep_at
WHERE e.receipt IS NOT NULL AND NOT ` + live + `
RETURNING fence, ` + quick("$8")),
		fence: n.in(`UPDATE latch_entries SET fence = nextval('latch_entries_fence') WHERE key = $1 AND token = $2 AND fence = 0 RETURNING fence, NULL`),
		lock:  n.in(`SELECT FROM latch_entries WHERE key = $1 FOR NO KEY UPDATE`),
		takeover: n.in(replace + `token = $11 AND ($12::bool OR ` + leaseEnd + ` <= clock_timestamp()) AND ` + alive(`clock_timestamp()`) + `
RETURNING fence, ` + quick("$8")),
		// Whichever claim has ended, the key is free. After takeAway, a late send of the claim does not make
		// the entry again: a COMMIT that arrives even later would settle it.
		reclaim: n.in(replace + `NOT ` + alive(`clock_timestamp()`) + ` AND NOT (token = $2 AND attempt < 0)
RETURNING fence, ` + quick("$8")),
		renew: n.in(`
UPDATE latch_entries e SET ends_at = greatest(ends_at, ` + after + `$3::bigint * interval '1 microsecond'), linger = greatest(linger, $4::bigint)
WHERE key = $1 AND token = $2 AND receipt IS NULL AND ` + live + `
RETURNING true, ` + quick("$5")),
		// The note stays for some time after its end, see sweep.
		note: n.in(`
WITH held AS MATERIALIZED (SELECT * FROM latch_entries e WHERE key = $1 AND token = $2 AND receipt IS NULL FOR NO KEY UPDATE)
INSERT INTO latch_entries AS n (key, token, attempt, fingerprint, owner, fence, ends_at, linger, sweep_at)
SELECT ` + noteKey + `, '', 0, '', '', 0, greatest(ends_at, ` + after + `$3::bigint * interval '1 microsecond'), greatest(linger, $4::bigint),
	greatest(ends_at, ` + after + `$3::bigint * interval '1 microsecond') + (greatest(linger, $4::bigint) + $6::bigint) * interval '1 microsecond'
FROM held e WHERE ` + alive(`statement_timestamp()`) + `
ON CONFLICT (key) DO UPDATE SET ends_at = greatest(n.ends_at, EXCLUDED.ends_at), linger = greatest(n.linger, EXCLUDED.linger),
	sweep_at = greatest(n.ends_at, EXCLUDED.ends_at) + (greatest(n.linger, EXCLUDED.linger) + $6::bigint) * interval '1 microsecond'
RETURNING true, ` + quick("$5")),

		// The claim of a set locks rows in the order of the keys, so that no two claims wait for each other. If
		// some of the keys were taken after the snapshot, the statement fails, which undoes all of it. If
		// one of them was taken before, even by its own token, the statement takes none.
		claimSet: n.in(`
WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::bytea[], $2::bytea[]) AS w(key, token)),
claimed AS (
	INSERT INTO latch_entries AS e (key, token, attempt, fingerprint, owner, fence, ends_at, linger, receipt, sweep_at)
	SELECT w.key, w.token, $3::int, ''::bytea, $4::bytea, 0,
		` + after + `$5::bigint * interval '1 microsecond', 0, NULL, ` + after + `$5::bigint * interval '1 microsecond'
	FROM wanted w
	WHERE NOT EXISTS (SELECT FROM latch_entries e WHERE e.key = ANY ($1::bytea[]) AND ` + wasLive + `)
	ORDER BY w.key
	ON CONFLICT (key) DO UPDATE SET token = EXCLUDED.token, attempt = EXCLUDED.attempt, fingerprint = EXCLUDED.fingerprint,
		owner = EXCLUDED.owner, fence = EXCLUDED.fence, ends_at = EXCLUDED.ends_at, linger = EXCLUDED.linger,
		receipt = NULL, sweep_at = EXCLUDED.sweep_at
	WHERE NOT ` + live + `
	RETURNING 1)
SELECT (CASE taken WHEN 0 THEN 'false' WHEN cardinality($1::bytea[]) THEN 'true' ELSE '` + notAll + `' END)::bool
FROM (SELECT count(*) AS taken FROM claimed) AS all_of_them`),
		getSet: n.in(`SELECT ` + confirmed + `, e.key, ` + columns(`e.linger`, `e.ends_at`) + `, e.receipt FROM latch_entries e WHERE key = ANY ($1::bytea[]) ORDER BY key`),

		settle: n.in(`
UPDATE latch_entries e SET receipt = $3::bytea, linger = 0, ends_at = ` + after + `$4::bigint * interval '1 microsecond', sweep_at = ` + after + `$4::bigint * interval '1 microsecond'
WHERE key = $1 AND token = $2 AND receipt IS NULL AND ` + alive(`statement_timestamp()`) + `
RETURNING true`),
		settled: n.in(`SELECT true, ` + confirmed + ` FROM latch_entries e WHERE key = $1 AND token = $2 AND receipt IS NOT NULL AND ` + wasLive),
		amend:   n.amend(),
		release: n.in(`
DELETE FROM latch_entries e WHERE key = $1 AND token = $2 AND receipt IS NULL AND attempt >= 0
RETURNING ` + alive(`statement_timestamp()`) + `, ` + quick("true")),
		// A row that takeAway has marked stays, though the key is free: see reclaim.
		releaseTaken: n.in(`
UPDATE latch_entries e SET ends_at = 'epoch', linger = 0 WHERE key = $1 AND token = $2 AND receipt IS NULL AND attempt < 0 AND ` + alive(`statement_timestamp()`) + `
RETURNING true`),
		forget: n.in(`DELETE FROM latch_entries e WHERE key = $1 AND token = $2 RETURNING ` + alive(`statement_timestamp()`)),
		// A row that was renewed after its sweep_at was set is due again at its new end. The
		// statement names rows by their place (ctid), without a join, which would read the whole of
		// a small table. The second column returns the moment up to which the sweep has come.
		//
		// A claim stays as long as its note. The statement may not see a note that was written after it
		// has begun. So the row of a record stays for rowstore.SweepAfter after its end: a renewal that takes longer is
		// confirmed to no caller.
		sweep: n.in(`
WITH due AS (SELECT ctid, sweep_at FROM latch_entries e
	WHERE sweep_at >= 'epoch'::timestamptz + $2::bigint * interval '1 microsecond' AND sweep_at <= now() AND ` + noted(`n.key`) + ` IS NULL
	ORDER BY sweep_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED),
over AS (DELETE FROM latch_entries e WHERE e.ctid = ANY (ARRAY(SELECT ctid FROM due)) AND NOT ` + live + ` RETURNING 1),
kept AS (UPDATE latch_entries e SET sweep_at = e.ends_at + e.linger * interval '1 microsecond'
	WHERE e.ctid = ANY (ARRAY(SELECT ctid FROM due)) AND ` + live + ` RETURNING 1)
SELECT (SELECT count(*) FROM over),
	(extract(epoch FROM CASE WHEN (SELECT count(*) FROM due) < $1::bigint THEN now() ELSE (SELECT max(sweep_at) FROM due) END) * 1000000)::bigint,
	` + quick("true")),

		get:      get(plain),
		getNoted: get(withNote),
		page:     n.in(`SELECT e.key, ` + withNote + `, CASE WHEN $3::bool THEN e.receipt END FROM latch_entries e WHERE key > $1 AND token <> '' ORDER BY key LIMIT $2`),
		lacking: n.in(`
SELECT concat_ws('; ',
	'GRANT ' || nullif(array_to_string(ARRAY(SELECT p FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p
		WHERE NOT has_table_privilege('latch_entries'::regclass, p)), ', '), '') || ' ON ' || 'latch_entries' || ' TO ' || quote_ident(current_user),
	CASE WHEN NOT has_sequence_privilege('latch_entries_fence'::regclass, 'USAGE')
		THEN 'GRANT USAGE ON SEQUENCE ' || 'latch_entries_fence' || ' TO ' || quote_ident(current_user) END)`),
		present: n.in(`
SELECT key, token, attempt, fingerprint, owner, fence, ends_at, linger, receipt, sweep_at FROM latch_entries LIMIT 0`),
		// A positive attempt marks an entry that a transaction of work may settle. A receipt
		// is written again without a change.
		takeAway: n.in(`
WITH waits AS MATERIALIZED (SELECT set_config('lock_timeout', $3, true) AS wait)
UPDATE latch_entries e SET attempt = CASE WHEN receipt IS NULL THEN -abs(attempt) ELSE attempt END
FROM waits WHERE key = $1 AND token = $2 AND wait IS NOT NULL
RETURNING receipt IS NOT NULL, wait`),
		idle:    `SELECT backend_start, (extract(epoch FROM clock_timestamp() - backend_start) * 1000000)::bigint` + idle,
		endIdle: `SELECT pg_terminate_backend(pid)` + idle + ` AND backend_start = $2`,
		location: n.in(`
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = 'latch_entries'::regclass`),
	}
}

// amend returns the statement that replaces a receipt, also in a transaction of work. The
// statement changes no indexed column.
func (n names) amend() string {
	return n.in(`
UPDATE latch_entries e SET receipt = $4::bytea
WHERE key = $1::bytea AND token = $2::bytea AND (receipt = $3::bytea OR receipt = $4::bytea) AND ` + live + `
RETURNING true`)
}

// settleInside returns the statement that writes a receipt in the transaction of the work. COMMIT is
// sent with it, in one round trip. So the statement fails if there is no claim to settle: after a failure,
// the server executes nothing that was sent with it. It changes no indexed column, and removes the
// mark from the session.
func (n names) settleInside() string {
	return n.in(`
WITH settled AS (
	UPDATE latch_entries e SET receipt = $3, linger = 0, ends_at = ` + after + `$4::bigint * interval '1 microsecond'
	WHERE key = $1 AND token = $2 AND receipt IS NULL AND attempt > 0 AND ` + marked + `$5
	RETURNING 1)
SELECT (CASE WHEN EXISTS (SELECT FROM settled) THEN '1' ELSE '` + noClaim + `' END)::int, set_config('latch.work', '', false)`)
}
