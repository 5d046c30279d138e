package campaign_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// counts are counted by name.
type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(name string) { c.plus(name, 1) }

func (c *counts) plus(name string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name] += n
}

func (c *counts) get(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func (c *counts) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.n {
		n += k
	}
	return n
}

func (c *counts) write(b *strings.Builder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.n)) {
		fmt.Fprintf(b, "%8d  %s\n", c.n[name], name)
	}
}

// book records the answers to callers.
type book struct {
	answers counts

	notes    sync.Mutex
	answered map[string][]byte
	denied   map[string]bool // answers of work that is said to be rolled back, for certain
	wrong    []string
}

// gets notes that an order was answered.
func (b *book) gets(name string, answer []byte) {
	b.notes.Lock()
	defer b.notes.Unlock()
	if b.answered == nil {
		b.answered = map[string][]byte{}
	}
	first, has := b.answered[name]
	switch {
	case !has:
		b.answered[name] = bytes.Clone(answer)
	case !bytes.Equal(first, answer):
		b.wrong = append(b.wrong, fmt.Sprintf("%s was answered %q and %q", name, first, answer))
	}
}

// denies notes that work is said to be rolled back.
func (b *book) denies(answer []byte) {
	b.notes.Lock()
	defer b.notes.Unlock()
	if b.denied == nil {
		b.denied = map[string]bool{}
	}
	b.denied[string(answer)] = true
}

func (b *book) complain(format string, args ...any) {
	b.notes.Lock()
	defer b.notes.Unlock()
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

// known are the answers so far.
func (b *book) known() map[string][]byte {
	b.notes.Lock()
	defer b.notes.Unlock()
	return maps.Clone(b.answered)
}

// inRows are the violations that rows show at any time: an order that is there twice, or of
// which it was said that it is not.
func (b *book) inRows(rows []orderRow) (wrong []string) {
	seen := map[string]int{}
	b.notes.Lock()
	defer b.notes.Unlock()
	for _, o := range rows {
		if seen[o.Name]++; seen[o.Name] == 2 {
			wrong = append(wrong, o.Name+" is there twice")
		}
		if b.denied[string(o.Answer)] {
			wrong = append(wrong, o.Name+" was said to be rolled back, and is there")
		}
	}
	return wrong
}

// violations compares the book with the rows at the end.
func (b *book) violations(rows []orderRow) []string {
	wrong := append(b.inRows(rows), missing(b.known(), rows)...)
	b.notes.Lock()
	defer b.notes.Unlock()
	wrong = append(wrong, b.wrong...)
	for _, o := range rows {
		if _, has := b.answered[o.Name]; !has {
			wrong = append(wrong, o.Name+" is there, and was never answered")
		}
	}
	return wrong
}

// missing says of which answers there is no row, or another one.
func missing(answered map[string][]byte, rows []orderRow) (wrong []string) {
	there := map[string][]byte{}
	for _, o := range rows {
		there[o.Name] = o.Answer
	}
	for name, answer := range answered {
		if row, has := there[name]; !has {
			wrong = append(wrong, fmt.Sprintf("%s was answered %q, and is not there", name, answer))
		} else if !bytes.Equal(row, answer) {
			wrong = append(wrong, fmt.Sprintf("%s was answered %q, and is there as %q", name, answer, row))
		}
	}
	return wrong
}

type orderRow struct {
	Name   string
	Answer []byte
}

// ordersOf are the rows that were committed, none while the server does not answer.
func ordersOf(ctx context.Context, url string) []orderRow {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil // it is restarting
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT name, answer FROM orders")
	if err != nil {
		return nil
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[orderRow])
	if err != nil {
		return nil
	}
	return all
}
