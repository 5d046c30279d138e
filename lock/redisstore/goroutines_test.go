package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// goroutines finds the goroutines of a test, which inherit its label, among the goroutines
// of parallel tests.
type goroutines struct{ label string }

// labelGoroutines labels the goroutines that begin between now and the end of t.
func labelGoroutines(t *testing.T) goroutines {
	t.Helper()
	g := goroutines{uuid.NewString()}
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", g.label)))
	t.Cleanup(func() { pprof.SetGoroutineLabels(context.Background()) })
	return g
}

// without runs f. Goroutines that f begins are not counted.
func (g goroutines) without(f func()) {
	pprof.SetGoroutineLabels(context.Background())
	defer pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("test", g.label)))
	f()
}

// left waits until only the goroutine of the test is left. If others still run when patience
// is over, it returns their stacks.
func (g goroutines) left() []string {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		n, stacks := g.count()
		if n <= 1 {
			return nil
		}
		if time.Now().After(end) {
			return []string{fmt.Sprintf("%d goroutines are left:\n%s", n-1, stacks)}
		}
	}
}

var profiled = regexp.MustCompile(`^(\d+) @`)

func (g goroutines) count() (n int, stacks string) {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // nothing fails into a buffer
	for block := range strings.SplitSeq(profile.String(), "\n\n") {
		block = strings.TrimPrefix(block, "goroutine profile: ")
		if strings.Contains(block, g.label) {
			if m := profiled.FindStringSubmatch(block); m != nil {
				more, _ := strconv.Atoi(m[1])
				n += more
			}
			stacks += block + "\n\n"
		}
	}
	return n, stacks
}
