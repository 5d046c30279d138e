package suite

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/httplatch/httplatch/bench/internal/peer"
	"github.com/httplatch/httplatch/bench/internal/stats"
)

// contendersInOrder are all, as tables list them, whatever order they ran in.
func contendersInOrder() []string {
	var whos []string
	for _, p := range peer.All() {
		whos = append(whos, p.Name)
	}
	for _, o := range orders() {
		whos = append(whos, o.who)
	}
	return append(whos, GuardLock, GuardFirst, GuardReplay, PeerFirst, PeerReplay, MemoryStore, RedisStore)
}

// inOrder compares by contender, and then by the number that cases begin with.
func inOrder(a, b stats.Name) int {
	whos := contendersInOrder()
	return cmp.Or(
		cmp.Compare(slices.Index(whos, a.Who), slices.Index(whos, b.Who)),
		cmp.Compare(number(a.Case), number(b.Case)),
	)
}

// number is 0 for a case that begins with none.
func number(kase string) (n int) {
	_, _ = fmt.Sscan(kase, &n)
	return n
}
