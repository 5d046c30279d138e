package middleware

// SetOnce says that a guard processes the request of p once, however often it is sent.
func SetOnce(p *Problem, once bool) { p.once = once }

// Problem returns a refusal of kind k.
func (k ProblemKind) Problem() *Problem { return k.problem(nil) }
