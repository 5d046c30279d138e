package lock

import (
	"context"
	"fmt"
	"time"
)

// Check returns nil if a majority of the nodes passes its own check, where it
// has one, or answers where it has not, and if they are as independent as can be
// found out: a node may have a method
//
//	Servers(ctx context.Context) (ids []string, error)
//
// which names what it writes to. A minority that fails is no error: the quorum
// works without it, and does not wait for one that does not answer for more than
// ten times WithNodeTimeout. What is wrong with one, its own Check says.
func (q *quorum) Check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan answer[[]string], len(q.given))
	for _, i := range q.all {
		go func() {
			servers, err := guardedNode(ctx, q, i, checkNode)
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
		failed.why = fmt.Sprintf("%d of %d nodes are well, %d have to be", failed.of-len(failed.failed), failed.of, failed.need)
		return failed
	}
	return nil
}

// checkPatience is for how many node timeouts a Check waits for the others when a
// majority is well.
const checkPatience = 10

func checkNode(ctx context.Context, node Store) (servers []string, err error) {
	err = checkOf(ctx, node)
	named, ok := node.(serverNamer)
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
			return fmt.Errorf("lock: quorum: stores[%d] writes to %d servers, as a Cluster does: a key is on one of them, "+
				"and a failover there can lose it unseen; use independent masters, or the Cluster alone, without a quorum", i, len(ids))
		}
		for _, id := range ids {
			if j, twice := seen[id]; twice {
				return fmt.Errorf("lock: quorum: stores[%d] and stores[%d] are one server, %s, by two addresses: they fail together; "+
					"give every node a server of its own", j, i, id)
			}
			seen[id] = i
		}
	}
	return nil
}
