package history_test

import (
	"fmt"
	"hash/maphash"

	"github.com/anishathalye/porcupine"
)

// act is an action of a Locker, as its caller sees it.
type act uint8

const (
	actTake    act = iota // an acquire was granted, or work was begun
	actRefused            // it was refused by a lease, or a claim, with a token
	actSettled            // it was refused by a receipt
	actReplay             // it was given a receipt
	actExtend
	actFree
	actSettle
	actLost  // a lease was said to have been lost
	actStray // a claim that got no answer, or one that no caller waited for, lands
	actEnd   // all is done that ever is, strays apart
	acts
)

func (a act) String() string {
	return [acts]string{
		"take", "refused by", "settled by", "replay", "extend", "free", "settle", "lost", "stray", "end",
	}[a]
}

// deed is an act as the input of an operation.
type deed struct {
	act     act
	key     string
	client  int
	token   string
	receipt string
}

func (d deed) String() string { return fmt.Sprintf("%v %s %s", d.act, d.token, d.receipt) }

// tenure is the state of a key: its holder. A stray claim has no holder, and
// is swept sooner or later.
type tenure struct {
	kind    tenureKind
	client  int
	token   string
	receipt string
}

type tenureKind uint8

const (
	free tenureKind = iota
	leased
	strayed
	settled
	over
)

func (h tenure) String() string {
	kind := []string{"free", "leased", "strayed", "settled", "over"}[h.kind]
	return fmt.Sprintf("%s %s %s", kind, h.token, h.receipt)
}

// leaseModel is the promise of a Locker. A stray lands where it can, or else
// comes to nothing after the end.
func leaseModel() porcupine.Model {
	seed := maphash.MakeSeed()
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{tenure{}} },
		Step: func(s, in, _ any) []any {
			var next []any
			for _, h := range s.(tenure).unswept() {
				if after, ok := h.after(in.(deed)); ok {
					next = append(next, after)
				}
			}
			return next
		},
		Equal:             func(a, b any) bool { return a.(tenure) == b.(tenure) },
		Hash:              func(s any) uint64 { return maphash.Comparable(seed, s.(tenure)) },
		DescribeOperation: func(in, _ any) string { return in.(deed).String() },
		DescribeState:     func(s any) string { return s.(tenure).String() },
	}
	return m.ToModel()
}

// unswept returns the tenures that h can have become by itself.
func (h tenure) unswept() []tenure {
	if h.kind == strayed {
		return []tenure{h, {}}
	}
	return []tenure{h}
}

// after is h after d, if d is possible.
func (h tenure) after(d deed) (tenure, bool) {
	mine := h.kind == leased && h.token == d.token
	switch d.act {
	case actTake:
		return tenure{leased, d.client, d.token, ""}, h.kind == free
	case actRefused:
		// By whom, unless the store did not say, and never by something of one's own.
		taken := h.kind == leased || h.kind == strayed
		return h, taken && h.client != d.client && (h.token == d.token || d.token == "")
	case actSettled:
		return h, h.kind == settled && h.token == d.token
	case actReplay:
		return h, h.kind == settled && h.receipt == d.receipt
	case actExtend:
		return h, mine
	case actFree:
		return tenure{}, mine
	case actSettle:
		return tenure{settled, d.client, d.token, d.receipt}, mine
	case actLost:
		return h, !mine
	case actStray:
		if h.kind == over {
			return h, true
		}
		return tenure{strayed, d.client, d.token, ""}, h.kind == free
	case actEnd:
		return tenure{kind: over}, true
	default:
		panic(d.act)
	}
}
