package failure

import "github.com/httplatch/httplatch/lock"

// class is a kind of failure. denial is lock.ErrDenied or lock.ErrFull if it outlasts a budget, however
// often the command is sent: it lasts until an operator, or another program, has acted. All other
// failures may be over in a moment, or on another connection. A server loads its data, a script ends, a
// slot arrives, a Cluster has elected a master. READONLY and MASTERDOWN come from the master before a
// failover: another connection finds its successor.
type class struct {
	denial error
	cure   string // an operator's remedy
}

// classes has the classes of failures. The upper-case ones are the codes of the replies that say
// "not executed".
var classes = map[string]class{
	"OOM":         {lock.ErrFull, "raise maxmemory, or give httplatch a Redis of its own; a claim needs memory, renewing and releasing do not"},
	"READONLY":    {nil, "this is a replica; connect to the master, through Sentinel or a Cluster client if it moves"},
	"LOADING":     {nil, "the server is starting and reads its data; this ends by itself"},
	"MISCONF":     {lock.ErrDenied, "the server refuses writes because it cannot save to disk; see its log"},
	"MASTERDOWN":  {nil, "this is a replica that has lost its master; connect to the master"},
	"NOREPLICAS":  {lock.ErrDenied, "the server has fewer replicas than its min-replicas-to-write"},
	"CLUSTERDOWN": {nil, "the Cluster does not serve this slot; see CLUSTER INFO"},
	"TRYAGAIN":    {nil, "the Cluster is moving this slot; this ends by itself"},
	"CROSSSLOT":   {nil, "this is a Redis Cluster behind one address, where no command changes several keys; use redis.NewClusterClient or a redis-cluster:// URL"},
	"MOVED":       {nil, "this is a Redis Cluster; use redis.NewClusterClient or a redis-cluster:// URL"},
	"ASK":         {nil, "this is a Redis Cluster; use redis.NewClusterClient or a redis-cluster:// URL"},
	"NOAUTH":      {lock.ErrDenied, "the server wants a password; set it in the client's options or the URL"},
	"WRONGPASS":   {lock.ErrDenied, "user or password is wrong, or the user is disabled"},
	"NOPERM": {lock.ErrDenied, "give the user what the store needs: " + MinimalACL + " (with your prefix; " +
		ClusterACL + " on a Cluster; +select for a database other than 0; " + NotifyACL + " for WithNotifications)"},
	"NOSCRIPT":  {nil, "the server forgets scripts as soon as it has run them; this ends by itself"},
	"WRONGTYPE": {lock.ErrDenied, "another program writes under this name; use WithPrefix to keep apart from it"},
	"BUSY":      {nil, "the server is busy with another client's script; see SCRIPT KILL"},

	"command":    {lock.ErrDenied, "the server has no such command: it was renamed or disabled, or a proxy in between does not pass it"},
	"dial":       {nil, "is the server up, and is the address right"},
	"pool":       {nil, "all connections are in use; raise PoolSize, or find what holds them"},
	"queue":      {lock.ErrDenied, "more calls are waiting than the server answers; it is too slow, or does not answer at all"},
	"overload":   {lock.ErrDenied, "claims arrive faster than the server serves them; send fewer, or use a faster server"},
	"closed":     {lock.ErrDenied, "the client was closed while the store was still in use"},
	"cancelled":  {nil, "the caller has left, or came when its time was over; the server is not at fault"},
	"handshake":  {nil, "the connection failed before the command was sent"},
	"silent":     {nil, "the server did not answer in time: see whether it hangs or is too slow, and whether the network drops packets"},
	"connection": {nil, "the connection ended before the answer came; whether the command was executed is not known"},
	"reply":      {nil, "not known as a refusal before execution; whether the command was executed is not known"},
	"answer":     {nil, "is something other than Redis answering"},
	"size":       {lock.ErrFull, "the server, or a proxy, takes no command of this length: raise its proto-max-bulk-len or the proxy's limit, or answer with less"},
	"value":      {lock.ErrDenied, "another program, or a newer httplatch, writes under this name; use WithPrefix to keep apart from it"},
	"late":       {nil, "the command reached the server after its caller had given up, and was refused"},
	"argument":   {lock.ErrDenied, ""},
}

// Cure returns an operator's remedy for a class, "" if none is known.
func Cure(class string) string { return classes[class].cure }

// MinimalACL has the permissions that every Redis user needs. A Cluster also needs ClusterACL,
// and WithNotifications NotifyACL. Large receipts cost the server less with
// LargeACL. The package documentation lists them too.
const (
	MinimalACL = "~latch:* +get +set +del +pttl +pexpire +time +eval +evalsha +scan +info +ping +client|setname"
	ClusterACL = "+cluster|slots +command"
	LargeACL   = "+multi +exec"
	NotifyACL  = "&latch:* +publish +subscribe +unsubscribe"
)
