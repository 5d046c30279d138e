package lock

import "bytes"

// votes are the answers of nodes to a claim, or to a question. What they say
// together does not depend on their order.
type votes struct {
	need    int
	token   string            // whose votes are counted; "" counts free keys
	attempt int               // of a takeover; 0 if it is none
	patient bool              // a majority of them is no reason not to hear the others
	dead    func(string) bool // tells the tokens that the caller would remove
	answers []answer[Entry]
}

// ruling is what votes say together.
type ruling struct {
	kind  rulingKind
	entry Entry
	node  int    // that said so
	sure  bool   // a majority did
	why   string // nothing can be said, other than for want of answers
}

type rulingKind uint8

const (
	pending rulingKind = iota
	won                // a majority is ours
	receipt            // the work was done
	taken              // a majority is somebody else's, or nobody's who could give way
	split              // nobody has a majority, and somebody may give way
	mute               // a majority has not answered, or has not said enough
)

// faction is those who said the same token.
type faction struct {
	token string
	size  int
	said  [Settled + 1][]*answer[Entry]
}

func (f *faction) count(s State) int { return len(f.said[s]) }

// ours reports whether a is a vote that counts.
func (v *votes) ours(a *answer[Entry]) bool {
	switch {
	case a.err != nil:
		return false
	case v.token == "":
		return a.value.State == Free
	default:
		return a.value.State == Held && a.value.Token == v.token
	}
}

// rule says what the answers amount to; it is pending as long as others could
// change it.
//
// Where a majority of nodes has a receipt, nobody can be granted the key any
// more, and the receipt of the latest attempt is the answer. A majority that is
// Held by one token is held, even if there is an older receipt somewhere: whoever
// left that had lost the key. Otherwise a receipt outweighs everything that is
// not Settled, since it may be what is left of a settle that its holder has died
// over, and a majority of ours may have been taken from what it had left behind.
// But it is no answer yet (see recall), and cannot become one while it is barred.
func (v *votes) rule(complete bool) ruling {
	ours, answered, factions := v.count()
	settled, receipts := v.receiptOf(factions)
	if receipts >= v.need && (complete || settled.count(Settled) >= v.need) {
		return settled.receipt(true)
	}
	for _, f := range factions {
		if f.count(Held) >= v.need && f.count(Settled) == 0 {
			return f.ruling(taken, Held, v.need)
		}
	}
	switch {
	case ours >= v.need && settled == nil && (complete || !v.patient):
		return v.own()
	case !complete:
		return ruling{}
	case answered < v.need:
		return ruling{kind: mute}
	case settled != nil && !v.barred(settled, ours, answered, factions):
		return settled.receipt(false)
	default:
		return v.undecided(factions)
	}
}

// receiptOf returns the faction whose receipt counts, nil if there is none, and
// how many nodes have one.
func (v *votes) receiptOf(factions []*faction) (settled *faction, nodes int) {
	for _, f := range factions {
		n := f.count(Settled)
		nodes += n
		if n > 0 && (settled == nil || v.weightier(f, settled)) {
			settled = f
		}
	}
	return settled, nodes
}

// barred reports whether the receipt of f, which too few nodes have, may not or
// cannot be brought to others: because there has been a later attempt, which may
// have been granted the key, and leave a receipt of its own yet; or because
// somebody holds too many of the nodes. A takeover that has a majority knows that
// none of these can get one any more.
func (v *votes) barred(f *faction, ours, answered int, factions []*faction) bool {
	if v.attempt > 0 && ours >= v.need {
		return false
	}
	if v.attempt > f.attempt()+1 { // what it took nodes from was later too
		return true
	}
	held := 0
	for _, other := range factions {
		if other.token == f.token || other.count(Settled) > 0 {
			continue
		}
		if other.attempt() > f.attempt() {
			return true
		}
		held += other.count(Held)
	}
	return answered-held < v.need
}

// undecided says who is in the way when nobody has won. If one token has a
// majority, not all of it Held, it is what most of that is. If none has, it is
// one that the caller can remove, or else the largest part: nobody can tell
// more.
func (v *votes) undecided(factions []*faction) ruling {
	kind := taken
	var best *faction
	for _, f := range factions {
		switch {
		case f.count(Settled) > 0: // it is barred
			continue
		case f.count(Abandoned) >= v.need:
			return v.numbered(f.ruling(taken, Abandoned, v.need))
		case f.size >= v.need:
			return f.ruling(taken, Held, v.need)
		}
		if f.count(Held) > 0 {
			kind = split
		}
		if best == nil || v.nearer(f, best) {
			best = f
		}
	}
	switch {
	case best == nil && len(factions) > 0:
		return ruling{kind: mute, why: "there is a receipt, and may be one of a later attempt on the nodes that have not answered"}
	case best == nil: // entries that ended between two answers
		return ruling{kind: taken}
	case best.count(Held) > 0:
		return best.ruling(kind, Held, v.need)
	default:
		return v.numbered(best.ruling(kind, Abandoned, v.need))
	}
}

// numbered raises the attempt of an abandoned entry to the highest of the same
// work that any node remembers, so that the next one has a number of its own.
func (v *votes) numbered(r ruling) ruling {
	for i := range v.answers {
		a := &v.answers[i]
		if a.err == nil && a.value.State == Abandoned && bytes.Equal(a.value.Fingerprint, r.entry.Fingerprint) {
			r.entry.Attempt = max(r.entry.Attempt, a.value.Attempt)
		}
	}
	return r
}

func (v *votes) count() (ours, answered int, factions []*faction) {
	for i := range v.answers {
		a := &v.answers[i]
		if a.err != nil || a.value.State > Settled { // no state that there is
			continue
		}
		answered++
		switch {
		case v.ours(a):
			ours++
		case a.value.State != Free:
			factions = join(factions, a)
		}
	}
	return ours, answered, factions
}

func join(factions []*faction, a *answer[Entry]) []*faction {
	e := &a.value
	for _, f := range factions {
		if f.token == e.Token {
			f.size++
			f.said[e.State] = append(f.said[e.State], a)
			return factions
		}
	}
	f := &faction{token: e.Token, size: 1}
	f.said[e.State] = append(f.said[e.State], a)
	return append(factions, f)
}

// weightier says which of two receipts counts: the one that a majority has, or
// that of the later attempt, which was granted when the earlier had lost the key.
func (v *votes) weightier(a, b *faction) bool {
	n, m := a.count(Settled), b.count(Settled)
	if x, y := n >= v.need, m >= v.need; x != y {
		return x
	}
	if x, y := a.attempt(), b.attempt(); x != y {
		return x > y
	}
	if n != m {
		return n > m
	}
	return a.token > b.token // it must be the same one for everybody
}

// nearer says which of two is to be named as what is in the way.
func (v *votes) nearer(a, b *faction) bool {
	if v.dead != nil {
		if x, y := v.dead(a.token), v.dead(b.token); x != y {
			return x
		}
	}
	if a.size != b.size {
		return a.size > b.size
	}
	if x, y := a.count(Held) > 0, b.count(Held) > 0; x != y {
		return x
	}
	return a.attempt() > b.attempt()
}

func (f *faction) attempt() int {
	highest := 0
	for _, said := range f.said {
		for _, a := range said {
			highest = max(highest, a.value.Attempt)
		}
	}
	return highest
}

// receipt returns the receipt of f.
func (f *faction) receipt(sure bool) ruling {
	r := f.ruling(receipt, Settled, 0)
	r.entry.Attempt, r.sure = f.attempt(), sure
	return r
}

// ruling returns what f says of state, by the answer that says it for longest.
// sure is whether f, whatever else it says, is a majority.
func (f *faction) ruling(kind rulingKind, state State, need int) ruling {
	a := f.said[state][0]
	for _, other := range f.said[state] {
		if other.value.Left > a.value.Left {
			a = other
		}
	}
	return ruling{kind: kind, entry: a.value, node: a.node, sure: f.size >= need}
}

// own is a majority of ours, for as long as the shortest vote says.
func (v *votes) own() ruling {
	r := ruling{kind: won}
	for i := range v.answers {
		a := &v.answers[i]
		if v.ours(a) && (r.entry.State == Free || a.value.Left > 0 && a.value.Left < r.entry.Left) {
			r.entry, r.node = a.value, a.node
		}
	}
	return r
}
