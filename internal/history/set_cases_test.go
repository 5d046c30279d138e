package history_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

func TestSetModel(t *testing.T) {
	t.Parallel()
	const end = 1000
	op := func(m move, from, to int64) porcupine.Operation {
		return porcupine.Operation{Input: m, Call: from, Return: to}
	}
	take := func(from, to int64, grips ...grip) porcupine.Operation {
		return op(move{step: stepTake, grips: grips}, from, to)
	}
	one := func(s step, g grip, next string, from, to int64) porcupine.Operation {
		return op(move{step: s, grips: []grip{g}, next: next}, from, to)
	}
	landed := func(g grip, from, to int64) porcupine.Operation {
		return op(move{step: stepRefused, grips: []grip{g}, landed: true}, from, to)
	}
	item := func(place int, token string) grip { return grip{place, token} }
	permit := func(n int, token string) grip { return grip{items + n - 1, token} }
	for _, c := range []struct {
		name  string
		legal bool
		ops   []porcupine.Operation
	}{
		{"disjoint sets", true, []porcupine.Operation{
			take(0, 1, item(0, "a"), item(1, "b")), take(2, 3, item(2, "c"), item(3, "d")),
		}},
		{"sets that overlap", false, []porcupine.Operation{
			take(0, 1, item(0, "a"), item(1, "b")), take(2, 3, item(1, "c"), item(2, "d")),
		}},
		{"a set released", true, []porcupine.Operation{
			take(0, 1, item(0, "a"), item(1, "b")), one(stepFree, item(0, "a"), "", 2, 5), one(stepFree, item(1, "b"), "", 2, 5), take(3, 4, item(1, "c")),
		}},
		{"a set released in part", false, []porcupine.Operation{
			take(0, 1, item(0, "a"), item(1, "b")), one(stepFree, item(0, "a"), "", 2, 3), one(stepFree, item(1, "b"), "", 2, 3),
			one(stepRefused, item(1, "b"), "", 4, 5),
		}},
		{"a key taken before the release of its set", false, []porcupine.Operation{
			take(0, 1, item(0, "a"), item(1, "b")), take(2, 3, item(0, "c")), one(stepFree, item(0, "a"), "", 4, 5),
		}},
		{"released without an answer", true, []porcupine.Operation{
			take(0, 1, item(0, "a")), one(stepFree, item(0, "a"), "", 2, end+1), take(4, 5, item(0, "b")),
		}},
		{"refused by a claim under way", true, []porcupine.Operation{landed(item(0, "a"), 0, 1), take(0, 3, item(0, "a"), item(1, "b"))}},
		{"refused by a claim under way, though held", false, []porcupine.Operation{take(0, 1, item(0, "a")), landed(item(0, "b"), 2, 3)}},
		{"refused without a holder", false, []porcupine.Operation{one(stepRefused, item(0, "a"), "", 2, 3)}},
		{"a set that has lost a key", false, []porcupine.Operation{
			take(0, 1, item(0, "a"), item(1, "b")), op(move{step: stepLost, grips: []grip{item(0, "a"), item(1, "b")}}, 2, 3),
		}},
		{"all permits", true, []porcupine.Operation{take(0, 1, permit(1, "a")), take(2, 3, permit(2, "b"))}},
		{"one permit more", false, []porcupine.Operation{take(0, 1, permit(1, "a")), take(2, 3, permit(2, "b")), take(4, 5, permit(3, "c"))}},
		{"one permit for two", false, []porcupine.Operation{take(0, 1, permit(1, "a")), take(2, 3, permit(1, "b"))}},
		{"handed over and resumed", true, []porcupine.Operation{
			take(0, 1, item(0, "a")), one(stepReplace, item(0, "a"), "t", 2, 3), one(stepRefused, item(0, "t"), "", 4, 5),
			one(stepReplace, item(0, "t"), "b", 6, 7), one(stepSpent, item(0, "t"), "", 8, 9), one(stepFree, item(0, "b"), "", 10, 11),
		}},
		{"resumed twice", false, []porcupine.Operation{
			take(0, 1, item(0, "a")), one(stepReplace, item(0, "a"), "t", 2, 3),
			one(stepReplace, item(0, "t"), "b", 4, 5), one(stepReplace, item(0, "t"), "c", 6, 7),
		}},
		{"spent before it was resumed", false, []porcupine.Operation{
			take(0, 1, item(0, "a")), one(stepReplace, item(0, "a"), "t", 2, 3), one(stepSpent, item(0, "t"), "", 4, 5), one(stepReplace, item(0, "t"), "b", 6, 7),
		}},
		{"free after a resume without an answer", true, []porcupine.Operation{
			take(0, 1, item(0, "a")), one(stepReplace, item(0, "a"), "t", 2, 3), one(stepUseUp, item(0, "t"), "", 4, end+1), take(6, 7, item(0, "b")),
		}},
		{"resumed and free", false, []porcupine.Operation{
			take(0, 1, item(0, "a")), one(stepReplace, item(0, "a"), "t", 2, 3), one(stepReplace, item(0, "t"), "b", 4, 5), take(6, 7, item(0, "c")),
			one(stepFree, item(0, "b"), "", 8, 9),
		}},
		{"free after patience", true, []porcupine.Operation{
			take(0, 1, item(0, "a")), one(stepReplace, item(0, "a"), "t", 2, 3), one(stepLapse, item(0, "t"), "", 50, end+1), take(60, 61, item(0, "b")),
		}},
		{"free before patience is over", false, []porcupine.Operation{
			take(0, 1, item(0, "a")), one(stepReplace, item(0, "a"), "t", 2, 3), one(stepLapse, item(0, "t"), "", 50, end+1), take(40, 41, item(0, "b")),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			last := op(move{step: stepEnd}, end, end)
			j := judge{time.Minute, filepath.Join(t.TempDir(), "case")}
			err := j.check(setModel(), map[string][]porcupine.Operation{"room": append(c.ops, last)})
			if c.legal {
				require.NoError(t, err)
				return
			}
			var illegal *illegalError
			require.ErrorAs(t, err, &illegal)
		})
	}
}
