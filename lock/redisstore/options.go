package redisstore

// Option is an option of [New] and [Open].
type Option interface{ apply(*Store) }

type option func(*Store)

func (o option) apply(s *Store) { o(s) }

// WithPrefix sets what the names of all entries begin with; the default is
// "latch:". Stores with different prefixes on one Redis do not see each other.
//
// In a Redis Cluster, a prefix with a hash tag ("{latch}:") puts all entries on
// one node.
func WithPrefix(prefix string) Option {
	return option(func(s *Store) { s.prefix = prefix })
}
