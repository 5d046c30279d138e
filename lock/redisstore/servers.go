package redisstore

import "context"

// Servers returns the run ids of the masters that the store writes to: one, and
// in a Cluster several. A quorum uses it to find stores that are one server, and
// is not meant to be built of Clusters. A server that does not tell its run id is
// left out.
func (s *Store) Servers(ctx context.Context) (ids []string, err error) {
	masters, err := s.masters(ctx)
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
