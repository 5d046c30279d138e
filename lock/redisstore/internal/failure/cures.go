package failure

// cures has a sentence with an operator's remedy, by class. The upper-case
// classes are the codes of the replies that say "not executed".
var cures = map[string]string{
	"OOM":         "raise maxmemory, or give httplatch a Redis of its own; a claim needs memory, renewing and releasing do not",
	"READONLY":    "this is a replica; connect to the master, through Sentinel or a Cluster client if it moves",
	"LOADING":     "the server is starting and reads its data; this ends by itself",
	"MISCONF":     "the server refuses writes because it cannot save to disk; see its log",
	"MASTERDOWN":  "this is a replica that has lost its master; connect to the master",
	"NOREPLICAS":  "the server has fewer replicas than its min-replicas-to-write",
	"CLUSTERDOWN": "the Cluster does not serve this slot; see CLUSTER INFO",
	"TRYAGAIN":    "the Cluster is moving this slot; this ends by itself",
	"CROSSSLOT":   "this is a Redis Cluster behind one address, where no command changes several keys; use redis.NewClusterClient or a redis-cluster:// URL",
	"MOVED":       "this is a Redis Cluster; use redis.NewClusterClient or a redis-cluster:// URL",
	"ASK":         "this is a Redis Cluster; use redis.NewClusterClient or a redis-cluster:// URL",
	"NOAUTH":      "the server wants a password; set it in the client's options or the URL",
	"WRONGPASS":   "user or password is wrong, or the user is disabled",
	"NOPERM":      "give the user what the store needs: " + MinimalACL + " (with your prefix; " + ClusterACL + " on a Cluster; +select for a database other than 0; " + NotifyACL + " for WithNotifications)",
	"NOSCRIPT":    "the server forgets scripts as soon as it has run them; this ends by itself",
	"WRONGTYPE":   "another program writes under this name; use WithPrefix to keep apart from it",
	"BUSY":        "the server is busy with another client's script; see SCRIPT KILL",

	"command":    "the server has no such command: it was renamed or disabled, or a proxy in between does not pass it",
	"dial":       "is the server up, and is the address right",
	"pool":       "all connections are in use; raise PoolSize, or find what holds them",
	"queue":      "more calls are waiting than the server answers; it is too slow, or does not answer at all",
	"overload":   "claims arrive faster than the server serves them; send fewer, or use a faster server",
	"closed":     "the client was closed while the store was still in use",
	"cancelled":  "the caller has left, or came when its time was over; the server is not at fault",
	"handshake":  "the connection failed before the command was sent",
	"silent":     "the server did not answer in time: see whether it hangs or is too slow, and whether the network drops packets",
	"connection": "the connection ended before the answer came; whether the command was executed is not known",
	"reply":      "not known as a refusal before execution; whether the command was executed is not known",
	"answer":     "is something other than Redis answering",
	"size":       "the server, or a proxy, takes no command of this length: raise its proto-max-bulk-len or the proxy's limit, or answer with less",
	"value":      "another program, or a newer httplatch, writes under this name; use WithPrefix to keep apart from it",
	"late":       "the command reached the server after its caller had given up, and was refused",
}

// Cure returns an operator's remedy for a class, "" if none is known.
func Cure(class string) string { return cures[class] }

// MinimalACL has the permissions that every Redis user needs. A Cluster also needs ClusterACL,
// and WithNotifications NotifyACL. Large receipts cost the server less with
// LargeACL. The package documentation lists them too.
const (
	MinimalACL = "~latch:* +get +set +del +pttl +pexpire +time +eval +evalsha +scan +info +ping +client|setname"
	ClusterACL = "+cluster|slots +command"
	LargeACL   = "+multi +exec"
	NotifyACL  = "&latch:* +publish +subscribe +unsubscribe"
)
