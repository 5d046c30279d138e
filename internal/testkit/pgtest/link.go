package pgtest

import (
	"net"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/link"
)

// Link is the network between a standby and its primary.
type Link struct{ *link.Link }

// NewLink returns a link that is cut until a call of To. It ends with tb.
func NewLink(tb testing.TB) *Link {
	tb.Helper()
	return &Link{link.New(tb)}
}

// Conninfo returns the setting of a standby that follows the primary over l. COMMITs wait for the
// standby if synchronous_standby_names is "standby".
func (l *Link) Conninfo() string {
	_, port, _ := net.SplitHostPort(l.Addr()) // it has one
	return "primary_conninfo=host=127.0.0.1 port=" + port + " user=" + superuser + " application_name=standby"
}
