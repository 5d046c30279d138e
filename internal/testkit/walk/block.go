package walk

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Block is a fenced block of a page.
type Block struct {
	Language string
	Text     string
	Line     int    // of its first fence
	Before   string // the line of text before it
}

// Blocks returns the fenced blocks of a page in their order.
func Blocks(tb testing.TB, page string) []Block {
	tb.Helper()
	text, err := os.ReadFile(page) //nolint:gosec // a page of this repository
	if err != nil {
		tb.Fatal(err)
	}
	var blocks []Block
	var open *Block
	before, number := "", 0
	for line := range strings.Lines(string(text)) {
		number++
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case open == nil && isFence:
			open = &Block{Language: fence, Line: number, Before: before}
		case isFence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.Text += line
		case strings.TrimSpace(line) != "":
			before = strings.TrimSpace(line)
		}
	}
	if open != nil {
		tb.Fatalf("%s:%d: a block does not end", page, open.Line)
	}
	return blocks
}

// Has reports whether a page has a block of a language.
func Has(tb testing.TB, page, language string) bool {
	tb.Helper()
	return slices.ContainsFunc(Blocks(tb, page), func(b Block) bool { return b.Language == language })
}
