package middleware

import "net/http"

// SetOnce says that a guard processes the request of p once, however often it is sent.
func SetOnce(p *Problem, once bool) { p.once = once }

// Problem returns a refusal of kind k.
func (k ProblemKind) Problem() *Problem { return k.problem(nil) }

// Reaction returns what clients do after a refusal of kind k.
func (k ProblemKind) Reaction() (again, endsKey bool) { return kinds[k].again, kinds[k].endsKey }

// RefuseCall answers r with p as JSONRPC does.
func RefuseCall(w http.ResponseWriter, r *http.Request, p *Problem) { (&rpc{}).refuse(w, r, p) }
