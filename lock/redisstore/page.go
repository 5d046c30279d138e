package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/httplatch/httplatch/lock"
)

// maxScan bounds how long one SCAN keeps the server from its other clients.
const maxScan = 1000

// Page is part of [lock.Inspector]. It makes one SCAN, for which the server
// looks at about limit names, 1,000 at most, and reads the values of the matching entries.
// Its cost does not depend on the number of entries or of other keys, and a page may be
// empty. next names a master and its cursor. If masters change between two pages, entries may
// be missed. It returns when ctx ends, whatever the client and the server do.
func (s *Store) Page(ctx context.Context, cursor string, limit int, match func(key string) bool) (page []lock.Entry, next string, err error) {
	master, at, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	masters, err := s.nodes.masters(ctx)
	if err != nil {
		return nil, "", err
	}
	if master >= len(masters) {
		return nil, "", nil // the last page had more masters
	}
	names, at, err := s.scan(ctx, masters[master], at, min(max(limit, 1), maxScan))
	if err != nil {
		return nil, "", err
	}
	wanted := func(_, key string) bool { return key == "" || match == nil || match(key) }
	for e, err := range s.entries(ctx, masters[master], names, false, wanted) {
		switch {
		case endsListing(err):
			return nil, "", err
		case e.Key != "" && wanted("", e.Key):
			e.Receipt = nil // it may be cut
			page = append(page, e)
		}
	}
	if at == "0" {
		master++
	}
	if master == len(masters) {
		return page, "", nil
	}
	return page, strconv.Itoa(master) + ":" + at, nil
}

// parseCursor parses a cursor of Page.
func parseCursor(cursor string) (master int, at string, err error) {
	if cursor == "" {
		return 0, "0", nil
	}
	number, at, found := strings.Cut(cursor, ":")
	master, err = strconv.Atoi(number)
	_, notANumber := strconv.ParseUint(at, 10, 64)
	if !found || err != nil || master < 0 || notANumber != nil {
		return 0, "", fmt.Errorf("%w: redisstore: the cursor is not one that Page returned", lock.ErrNotApplied)
	}
	return master, at, nil
}
