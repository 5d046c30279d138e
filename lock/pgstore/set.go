package pgstore

import (
	"context"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// sets sets the statements on the keys of a set. The claim locks rows in the order of the keys, so
// that no two claims wait for each other.
func (s *statements) sets(n names) {
	// If some of the keys were taken after the snapshot, the division by zero undoes the whole
	// statement. If one of them was taken before, even by its own token, the statement takes
	// none.
	s.claimSet = n.in(`
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
	WHERE NOT ` + live + ` AND NOT (e.token = EXCLUDED.token AND e.attempt < 0)
	RETURNING 1)
SELECT CASE WHEN taken IN (0, cardinality($1::bytea[])) THEN taken > 0 ELSE 1 / (taken - taken) > 0 END
FROM (SELECT count(*) AS taken FROM claimed) AS all_of_them`)

	s.getSet = n.in(`SELECT ` + confirmed + `, e.key, ` + columns(`e.linger`, `e.ends_at`) + `, e.receipt FROM latch_entries e WHERE key = ANY ($1::bytea[]) ORDER BY key`)
}

// ClaimSet is part of [lock.SetClaimer]. It sends one statement, and a second one to read the
// entries if one of the keys is taken.
func (s *Store) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (inTheWay lock.Entry, err error) {
	if err := rowstore.Admit(ctx, &s.calls, nil); err != nil {
		return lock.Entry{}, err
	}
	names, tokens := make([][]byte, len(keys)), make([][]byte, len(keys))
	for i, key := range keys {
		names[i], tokens[i] = []byte(key), []byte(claims[i].Token)
	}
	s.claims.Add(uint64(len(keys)))
	s.sweeps.Claim(ctx, len(keys), s.sweep)
	for range rowstore.MaxClaims {
		taken, err := s.flagAt(ctx, rowstore.Later, s.statements.claimSet, names, tokens, int64(claims[0].Attempt), []byte(claims[0].Owner), rowstore.Micros(claims[0].Lease))
		switch {
		case hasCode(err, "22012"): // some of the keys were taken meanwhile
		case err != nil || taken:
			return lock.Entry{}, err
		}
		e, ours, err := s.firstOf(ctx, names, claims)
		if err != nil || ours || e.State != lock.Free {
			return e, err
		}
	}
	return lock.Entry{}, rowstore.Unsettled("pgstore")
}

// firstOf returns the first entry that belongs to another claim, or the zero Entry. ours reports
// whether each entry belongs to its own claim.
func (s *Store) firstOf(ctx context.Context, names [][]byte, claims []lock.Claim) (e lock.Entry, ours bool, err error) {
	rows, err := s.query(ctx, s.statements.getSet, names)
	if err != nil {
		return lock.Entry{}, false, err
	}
	defer rows.Close()
	tokens := make(map[string]string, len(names))
	for i, name := range names {
		tokens[string(name)] = claims[i].Token
	}
	own := 0
	for rows.Next() {
		var key blob
		found, err := scanEntry(rows, any(nil), &key)
		switch {
		case err != nil:
			return lock.Entry{}, false, storeError(err)
		case found.State == lock.Held && found.Token == tokens[string(key)]:
			own++
		case found.State != lock.Free:
			found.Key = string(key)
			return found, false, nil
		}
	}
	rows.Close()
	return lock.Entry{}, own == len(names), storeError(rows.Err())
}
