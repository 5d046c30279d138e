package quorum

import (
	"context"
	"fmt"
	"time"

	"github.com/httplatch/httplatch/lock"
)

// Check returns nil if a majority of the nodes passes and no two are known to be one server. A
// node passes if its own check passes, or, without a check, if it answers. A node may name its
// servers ([lock.Description]). A minority may fail: the quorum works without it. Check waits for
// a majority as long as ctx and the nodes' own checks let it, and then for the other nodes up to
// ten times WithNodeTimeout. A node's own Check has the details.
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

// checkPatience is the number of node timeouts that a Check waits for the other nodes after a
// majority has passed.
const checkPatience = 10

func (q *Store) checkNode(ctx context.Context, i int) (servers []string, err error) {
	node := q.given[i]
	about := lock.Describe(node)
	if about.Check != nil {
		err = about.Check(ctx)
	} else {
		_, err = node.Get(ctx, "check")
	}
	if about.Servers == nil {
		return nil, err
	}
	servers, unnamed := about.Servers(ctx)
	if err == nil { // else Servers returns the same error
		err = unnamed
	}
	return servers, err
}

// independent returns an error if two nodes cannot fail independently.
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
