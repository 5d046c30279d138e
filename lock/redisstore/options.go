package redisstore

// Option is an option of [New] and [Open].
type Option interface{ apply(*Store) }

type option func(*Store)

func (o option) apply(s *Store) { o(s) }

// WithPrefix sets the beginning of the names of all entries. The default is
// "latch:". Stores with the same prefix share locks and receipts, so name the service in it:
//
//	redisstore.WithPrefix("shop:")
//
// Stores with different prefixes on one Redis do not see each other's entries. Two services
// with one prefix mistake each other's requests for repeats: for an equal user, path
// and key, the handler of the second service does not run, and its caller gets the
// answer of the first. A gateway and the service behind it also need two prefixes.
//
// In a Redis Cluster, a prefix with a hash tag ("{latch}:") puts all entries on
// one node.
func WithPrefix(prefix string) Option {
	return option(func(s *Store) { s.prefix = prefix })
}

// WithoutCheck makes [Open] return a store without contacting the server, which may be down. It is
// for the nodes of a quorum: the Check of [quorum.New] checks all nodes, and accepts a majority.
//
// [New] never checks.
func WithoutCheck() Option {
	return option(func(s *Store) { s.unchecked = true })
}

// WithoutPluralClaims makes the store claim the keys of a set ([lock.Locker.AcquireAll]) one after the
// other, as it does on a Cluster. It is for proxies that share keys among several servers and send a
// command to the server of its first key, such as Twemproxy, Envoy's Redis proxy and Codis. Behind such
// a proxy, a script takes all keys of a set on one server, where the claims of other sets, and of single
// keys, do not find them: a key gets two holders. [Store.Check] tries to detect such a proxy. Stop
// every process without the option before you start the first one with it.
func WithoutPluralClaims() Option {
	return option(func(s *Store) { s.inOrder.Store(true) })
}
