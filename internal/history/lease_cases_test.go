package history_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

func TestLeaseModel(t *testing.T) {
	t.Parallel()
	const end = 1000
	by := func(client int, a act, token string, from, to int64) porcupine.Operation {
		return porcupine.Operation{Input: deed{act: a, client: client, token: token, receipt: "x"}, Call: from, Return: to}
	}
	stray := func(client int, token string, from int64) porcupine.Operation {
		return by(client, actStray, token, from, end+1)
	}
	for _, c := range []struct {
		name  string
		legal bool
		ops   []porcupine.Operation
	}{
		{"one after the other", true, []porcupine.Operation{
			by(1, actTake, "a", 0, 1), by(2, actRefused, "a", 2, 3), by(1, actExtend, "a", 4, 5), by(1, actFree, "a", 6, 7), by(2, actTake, "b", 8, 9),
		}},
		{"two at once", false, []porcupine.Operation{by(1, actTake, "a", 0, 1), by(2, actTake, "b", 2, 3)}},
		{"refused without a holder", false, []porcupine.Operation{by(2, actRefused, "a", 2, 3)}},
		{"refused by a former holder", false, []porcupine.Operation{
			by(1, actTake, "a", 0, 1), by(1, actFree, "a", 2, 3), by(2, actRefused, "a", 4, 5),
		}},
		{"refused by a stray", true, []porcupine.Operation{stray(1, "a", 0), by(2, actRefused, "a", 2, 3), by(2, actTake, "b", 4, 5)}},
		{"refused by a stray that lands twice", false, []porcupine.Operation{
			stray(1, "a", 0), by(2, actRefused, "a", 2, 3), by(2, actTake, "b", 4, 5), by(2, actFree, "b", 6, 7), by(2, actRefused, "a", 8, 9),
		}},
		{"refused by a stray of one's own", false, []porcupine.Operation{stray(1, "a", 0), by(1, actRefused, "a", 2, 3)}},
		{"a stray that never lands", true, []porcupine.Operation{stray(1, "a", 0), by(2, actTake, "b", 2, 3)}},
		{"lost though held", false, []porcupine.Operation{by(1, actTake, "a", 0, 1), by(1, actLost, "a", 2, 3)}},
		{"replayed", true, []porcupine.Operation{by(1, actTake, "a", 0, 1), by(1, actSettle, "a", 2, 3), by(2, actReplay, "", 4, 5)}},
		{"replayed before it was settled", false, []porcupine.Operation{
			by(1, actTake, "a", 0, 1), by(2, actReplay, "", 2, 3), by(1, actSettle, "a", 4, 5),
		}},
		{"taken though settled", false, []porcupine.Operation{
			by(1, actTake, "a", 0, 1), by(1, actSettle, "a", 2, 3), by(2, actTake, "b", 4, 5),
		}},
		{"refused by a receipt", true, []porcupine.Operation{
			by(1, actTake, "a", 0, 1), by(1, actSettle, "a", 2, 3), by(1, actSettled, "a", 4, 5),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			last := by(0, actEnd, "", end, end)
			j := judge{time.Minute, filepath.Join(t.TempDir(), "case")}
			err := j.check(leaseModel(), map[string][]porcupine.Operation{"key": append(c.ops, last)})
			if c.legal {
				require.NoError(t, err)
				return
			}
			var illegal *illegalError
			require.ErrorAs(t, err, &illegal)
		})
	}
}
