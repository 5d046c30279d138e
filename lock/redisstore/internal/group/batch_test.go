package group_test

import (
	"sync/atomic"
	"testing"

	"github.com/httplatch/httplatch/lock/redisstore/internal/group"
)

// reply is an error reply of a server.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// A refusal says that the command was not executed, if it is the only reply: a hook of the client
// that sends the command again does not get the reply to the first send.
func TestRefusalOfARepeatedSend(t *testing.T) {
	t.Parallel()
	const refusal = reply("OOM command not allowed when used memory > 'maxmemory'.")
	for name, tt := range map[string]struct {
		sends   [][]error // each with its replies
		certain bool
	}{
		"once":                                 {[][]error{{refusal}}, true},
		"after a reply of a proxy":             {[][]error{{reply("ERR upstream failure")}, {refusal}}, false},
		"after a refusal":                      {[][]error{{refusal}, {refusal}}, false},
		"after no reply":                       {[][]error{{errSilent}, {refusal}}, false},
		"after no reply, by the client itself": {[][]error{{errSilent, refusal}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := group.New(group.Config{Share: 1, Batches: 1, Queue: 1, Direct: new(atomic.Bool), Send: func(b *group.Batch) (err error) {
				c := b.Commands()[0].(*group.Command)
				for _, replies := range tt.sends {
					err = c.Transmit(func() error {
						for _, said := range replies {
							c.SetErr(said)
						}
						return replies[len(replies)-1]
					})
				}
				return err
			}})
			err := do(t.Context(), g, "k", true)
			if tt.certain {
				requireNotApplied(t, err, "OOM")
			} else {
				requireUnknown(t, err, "OOM")
			}
		})
	}
}
