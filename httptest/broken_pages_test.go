package latchtest_test

import (
	"context"

	"github.com/httplatch/httplatch/lock"
)

func brokenPages() []brokenStore {
	// change breaks the entries of a page of a memory store.
	change := func(f func(b *broken, page []lock.Entry) []lock.Entry) func(b *broken) {
		return func(b *broken) {
			b.page = func(ctx context.Context, cursor string, limit int, match func(key string) bool) ([]lock.Entry, string, error) {
				page, next, err := b.complete.Page(ctx, cursor, limit, match)
				return f(b, page), next, err
			}
		}
	}
	return []brokenStore{
		{"page_yields_live", "the first of a page is lost", change(func(_ *broken, page []lock.Entry) []lock.Entry {
			return page[min(1, len(page)):]
		})},
		{"page_yields_live", "with receipts", change(func(b *broken, page []lock.Entry) []lock.Entry {
			for i, e := range page {
				page[i].Receipt = b.at(context.Background(), e.Key).Receipt
			}
			return page
		})},
		{"page_yields_live", "all are held", change(func(_ *broken, page []lock.Entry) []lock.Entry {
			for i := range page {
				page[i].State = lock.Held
			}
			return page
		})},
		{"page_yields_live", "only the first page", func(b *broken) {
			b.page = func(ctx context.Context, cursor string, limit int, match func(key string) bool) ([]lock.Entry, string, error) {
				page, _, err := b.complete.Page(ctx, cursor, limit, match)
				return page, "", err
			}
		}},
		{"page_yields_live", "match is not asked", func(b *broken) {
			b.page = func(ctx context.Context, cursor string, limit int, _ func(key string) bool) ([]lock.Entry, string, error) {
				return b.complete.Page(ctx, cursor, limit, nil)
			}
		}},
	}
}
