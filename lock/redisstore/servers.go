package redisstore

import "context"

// Servers returns the run ids of the masters that the store writes to: one, or several in a
// Cluster. With them, a quorum detects two stores on one server, and a store over a Cluster.
// Servers leaves out a server that does not report its run id.
func (s *Store) Servers(ctx context.Context) (ids []string, err error) {
	masters, err := s.nodes.masters(ctx)
	if err != nil {
		return nil, err
	}
	for _, master := range masters {
		answer, err := ask(ctx, master, "info", "server")
		if err != nil {
			return nil, err
		}
		text, _ := answer.(string)
		if id := parseInfo(text)["run_id"]; id != "" {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
