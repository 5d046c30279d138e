package redisstore

// Option is an option of [New] and [Open].
type Option interface{ apply(*Store) }

type option func(*Store)

func (o option) apply(s *Store) { o(s) }

// WithPrefix sets what the names of all entries begin with; the default is
// "latch:". It says who shares locks and receipts, so name the service in it:
//
//	redisstore.WithPrefix("shop:")
//
// Stores with different prefixes on one Redis do not see each other. Two services
// with one prefix take each other's requests for repeats: for an equal user, path
// and key, the second one's handler does not run, and its caller gets the first
// one's answer. A gateway and the service behind it need two, too.
//
// In a Redis Cluster, a prefix with a hash tag ("{latch}:") puts all entries on
// one node.
func WithPrefix(prefix string) Option {
	return option(func(s *Store) { s.prefix = prefix })
}

// WithoutCheck makes [Open] return a store whose server was not asked for
// anything yet, and may be down. It is for the nodes of a quorum: the Check of
// [quorum.New] asks them all, and is content with a majority.
//
// [New] does not check anyway.
func WithoutCheck() Option {
	return option(func(s *Store) { s.unchecked = true })
}
