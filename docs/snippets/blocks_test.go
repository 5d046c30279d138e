package snippets_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// block is a fenced block of a page.
type block struct {
	language string
	text     string
	line     int    // of its first fence
	before   string // the line of text before it
}

// blocksOf returns the fenced blocks of a page in their order.
func blocksOf(t *testing.T, page string) []block {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var blocks []block
	var open *block
	before, number := "", 0
	for line := range strings.Lines(string(text)) {
		number++
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case open == nil && isFence:
			open = &block{language: fence, line: number, before: before}
		case isFence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += line
		case strings.TrimSpace(line) != "":
			before = strings.TrimSpace(line)
		}
	}
	require.Nil(t, open, "%s: a block does not end", page)
	return blocks
}
