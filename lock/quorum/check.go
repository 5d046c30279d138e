package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Check returns nil if a majority of the nodes passes its own check, where it
// has one, or answers where it has not, and if they are as independent as can be
// found out: a node that is a
// [lock.ServerLister] names what it writes to. A minority that fails is no error: the quorum
// works without it, and does not wait for one that does not answer for more than
// ten times WithNodeTimeout. What is wrong with one, its own Check says.
func (q *Store) Check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan answer[[]string], len(q.given))
	for _, i := range q.all {
		go func() {
			servers, err := guardedNode(ctx, q, i, q.checkNode)
			results <- answer[[]string]{i, servers, err}
		}()
	}
	servers := make([][]string, len(q.given))
	failed := q.shortage("check")
	patience := time.NewTimer(checkPatience * q.timeout)
	patience.Stop()
	defer patience.Stop()
	for well := 0; well+len(failed.failed) < len(q.given); {
		select {
		case r := <-results:
			servers[r.node] = r.value
			failed.add(r.node, r.err)
			if r.err != nil {
				continue
			}
			if well++; well == q.need {
				patience.Reset(checkPatience * q.timeout)
			}
		case <-patience.C:
			return independent(servers)
		}
	}
	if err := independent(servers); err != nil {
		return err
	}
	if len(failed.failed) > len(q.given)-q.need {
		failed.why = fmt.Errorf("%d of %d nodes are well, %d have to be", failed.of-len(failed.failed), failed.of, failed.need)
		return failed
	}
	return nil
}

// checkPatience is for how many node timeouts a Check waits for the others when a
// majority is well.
const checkPatience = 10

func (q *Store) checkNode(ctx context.Context, i int) (servers []string, err error) {
	node := q.given[i]
	if c, ok := node.(lock.Checker); ok {
		err = c.Check(ctx)
	} else {
		_, err = node.Get(ctx, "check")
	}
	named, ok := node.(lock.ServerLister)
	if !ok {
		return nil, err
	}
	servers, unnamed := named.Servers(ctx)
	if err == nil { // or it says the same a second time
		err = unnamed
	}
	return servers, err
}

// independent looks for nodes that cannot fail alone.
func independent(servers [][]string) error {
	seen := make(map[string]int)
	for i, ids := range servers {
		if len(ids) > 1 {
			return fmt.Errorf("quorum: stores[%d] writes to %d servers, as a Cluster does: a key is on one of them, "+
				"and a failover there can lose it unseen; use independent masters, or the Cluster alone, without a quorum", i, len(ids))
		}
		for _, id := range ids {
			if j, twice := seen[id]; twice {
				return fmt.Errorf("quorum: stores[%d] and stores[%d] are one server, %s, by two addresses: they fail together; "+
					"give every node a server of its own", j, i, id)
			}
			seen[id] = i
		}
	}
	return nil
}
