// Package journal keeps what tests log.
package journal

import (
	"log/slog"
	"strings"
	"sync"
)

// Journal is a log that can be read while it is written. It is empty at first.
type Journal struct {
	mu   sync.Mutex
	text strings.Builder
}

// Logger returns a logger that writes to j.
func (j *Journal) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// Write is part of [io.Writer].
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// Lines returns the lines so far, and one empty line if there are none.
func (j *Journal) Lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Split(strings.TrimSpace(j.text.String()), "\n")
}

// Count returns how often text was logged.
func (j *Journal) Count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), text)
}
