package policy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
)

// Guards are the guards of a file, by name. The code that sets up routes asks for them.
// They are safe for concurrent use.
type Guards struct {
	all      []guard // in the order of the file
	doc      *document
	locker   *lock.Locker
	defaults latch.Option

	mu      sync.Mutex
	asked   map[string]bool
	missing []string // names that are not in the file, in the order of asking
}

// Load reads the file r. Its guards use l, keys by their names, and opts. The package's
// documentation describes the file and the error.
//
// It panics on a nil reader, a nil Locker, a nil key function and a nil option.
func Load(r io.Reader, l *lock.Locker, keys map[string]keyfunc.Func, opts ...latch.Option) (*Guards, error) {
	switch {
	case r == nil:
		panic("policy.Load: nil io.Reader")
	case l == nil:
		panic("policy.Load: nil *lock.Locker")
	}
	for name, f := range keys {
		if f == nil {
			panic(fmt.Sprintf("policy.Load: nil key function %q", name))
		}
	}
	defaults := latch.With(opts...)

	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("policy: reading the file: %w", err)
	}
	doc := &document{text: text}
	all := doc.build(l, keys, defaults)
	if err := doc.err(); err != nil {
		return nil, err
	}
	return &Guards{all: all, doc: doc, locker: l, defaults: defaults, asked: make(map[string]bool)}, nil
}

// Get returns the guard of this name. If the file has none, Get returns a guard that
// refuses with 500, and [Guards.Check] reports it: no route is unguarded by mistake.
func (g *Guards) Get(name string) func(http.Handler) http.Handler {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own := g.named(name); own != nil {
		g.asked[name] = true
		return own.wrap
	}
	if !slices.Contains(g.missing, name) {
		g.missing = append(g.missing, name)
	}
	return g.refuseAll(name)
}

// Check compares the file with the code. Its error names, one to a line, each guard that the code
// has asked for and the file lacks, and each guard of the file that the code has not asked for
// ([Guards.Get]). Call it when all routes are set up, and do not serve if it returns an error.
func (g *Guards) Check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var unused []string
	for _, own := range g.all {
		if !g.asked[own.name] {
			unused = append(unused, own.name)
		}
	}
	var errs []error
	for _, name := range g.missing {
		hint := ""
		if near := nearest(name, unused); near != "" {
			line, _ := g.doc.position(g.named(near).at)
			hint = fmt.Sprintf(", or rename %q on line %d", near, line)
		}
		errs = append(errs, fmt.Errorf("guard %q is mounted and not in the policies: add it%s", name, hint))
	}
	for _, name := range unused {
		errs = append(errs, g.doc.located(finding{
			g.named(name).at,
			fmt.Sprintf("guard %q is not mounted: remove it, or mount it on its route with Get", name),
		}))
	}
	return errors.Join(errs...)
}

// named returns the guard of this name, or nil.
func (g *Guards) named(name string) *guard {
	i := slices.IndexFunc(g.all, func(own guard) bool { return own.name == name })
	if i < 0 {
		return nil
	}
	return &g.all[i]
}

// refuseAll returns a guard in place of a missing one. Its key function fails, so that
// observers are notified of its refusals.
func (g *Guards) refuseAll(name string) func(http.Handler) http.Handler {
	missing := &keyfunc.Error{
		Status: http.StatusInternalServerError,
		Err:    fmt.Errorf("policy: guard %q is not in the policies", name),
	}
	return latch.Lock(g.locker, "missing-guard", func(*http.Request) (string, error) { return "", missing }, g.defaults)
}
