package once

import (
	"bytes"
	"fmt"
	"maps"
	"sync"
)

// Row is an order that was committed.
type Row struct {
	Name   string
	Answer []byte
}

// Book records the answers to callers. It is safe for concurrent use.
type Book struct {
	Answers Counts

	notes    sync.Mutex
	answered map[string][]byte
	denied   map[string]bool // answers of work that was reported as certainly rolled back
	wrong    []string
}

// Gets notes that an order was answered.
func (b *Book) Gets(name string, answer []byte) {
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

// Denies notes that work was reported as rolled back.
func (b *Book) Denies(answer []byte) {
	b.notes.Lock()
	defer b.notes.Unlock()
	if b.denied == nil {
		b.denied = map[string]bool{}
	}
	b.denied[string(answer)] = true
}

// Complain notes a violation.
func (b *Book) Complain(format string, args ...any) {
	b.notes.Lock()
	defer b.notes.Unlock()
	b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
}

// Known returns the answers so far.
func (b *Book) Known() map[string][]byte {
	b.notes.Lock()
	defer b.notes.Unlock()
	return maps.Clone(b.answered)
}

// InRows returns the violations that rows show at any time: an order that was committed twice, or
// that was reported as rolled back.
func (b *Book) InRows(rows []Row) (wrong []string) {
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

// Violations compares the book with the rows at the end.
func (b *Book) Violations(rows []Row) []string {
	wrong := append(b.InRows(rows), Missing(b.Known(), rows)...)
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

// Missing lists the answers whose row does not exist, or has another answer.
func Missing(answered map[string][]byte, rows []Row) (wrong []string) {
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
