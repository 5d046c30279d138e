package browser

import (
	"encoding/json"

	"github.com/httplatch/httplatch/example/full/internal/browser/npm"
)

// LoadAxe loads axe into the document, for [Page.Violations].
func (p *Page) LoadAxe() {
	p.tb.Helper()
	Eval[bool](p, string(npm.Axe.Load(p.tb))+";true")
}

// Violations has axe look at the document of window, an expression, into which it was loaded,
// and returns what it finds.
func (p *Page) Violations(window string) (found []string) {
	p.tb.Helper()
	Eval[bool](p, `(globalThis.found = null, `+window+`.axe.run().then((r) => { globalThis.found = JSON.stringify(
		r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html).join(" "))); }), true)`)
	p.Await("globalThis.found")
	if err := json.Unmarshal([]byte(Eval[string](p, "globalThis.found")), &found); err != nil {
		p.tb.Fatalf("browser: what axe found: %v", err)
	}
	return found
}
