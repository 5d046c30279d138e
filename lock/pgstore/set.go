package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/internal/rowstore"
)

// sets sets the statements on the keys of a set. The claim locks rows in the order of the keys, so
// that no two claims wait for each other.
func (s *statements) sets(n names) {
	// If some of the keys were taken after the snapshot, the statement fails, which undoes all of it. If
	// one of them was taken before, even by its own token, the statement takes none.
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
	WHERE NOT ` + live + `
	RETURNING 1)
SELECT (CASE taken WHEN 0 THEN 'false' WHEN cardinality($1::bytea[]) THEN 'true' ELSE '` + notAll + `' END)::bool
FROM (SELECT count(*) AS taken FROM claimed) AS all_of_them`)

	s.getSet = n.in(`SELECT ` + confirmed + `, e.key, ` + columns(`e.linger`, `e.ends_at`) + `, e.receipt FROM latch_entries e WHERE key = ANY ($1::bytea[]) ORDER BY key`)
}

// ClaimSet is part of [lock.SetClaimer]. It sends one statement, and a second one to read the
// entries if one of the keys is taken.
func (s *Store) ClaimSet(ctx context.Context, keys []string, claims []lock.Claim) (inTheWay lock.Entry, err error) {
	if err := rowstore.Admit(ctx, &s.calls, nil, false); err != nil {
		return lock.Entry{}, err
	}
	names, tokens := make([][]byte, len(keys)), make([][]byte, len(keys))
	for i, key := range keys {
		names[i], tokens[i] = []byte(key), []byte(claims[i].Token)
	}
	s.claims.Add(uint64(len(keys)))
	s.sweeps.Claim(ctx, len(keys), s.sweep)
	for range rowstore.MaxClaims {
		taken, err := s.flag(ctx, rowstore.Later, s.statements.claimSet, names, tokens, int64(claims[0].Attempt), []byte(claims[0].Owner), rowstore.Micros(claims[0].Lease))
		switch {
		case raised(err, notAll): // some of the keys were taken meanwhile
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
func (s *Store) firstOf(ctx context.Context, names [][]byte, claims []lock.Claim) (first lock.Entry, ours bool, err error) {
	tokens := make(map[string]string, len(names))
	for i, name := range names {
		tokens[string(name)] = claims[i].Token
	}
	own := 0
	err = s.each(ctx, rowstore.First, s.statements.getSet, func(rows pgx.Rows) error {
		r := new(rowstore.Row)
		if err := scanRow(rows, r, nil, &r.Key); err != nil {
			return err
		}
		switch e := r.Entry(); {
		case e.State == lock.Held && e.Token == tokens[e.Key]:
			own++
		case first.State == lock.Free:
			first = e
		}
		return nil
	}, names)
	return first, own == len(names), err
}
