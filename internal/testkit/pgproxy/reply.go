package pgproxy

import "bufio"

// replies passes the server's messages on to the client, until the server is gone.
func (c *conn) replies() {
	in := bufio.NewReader(c.server)
	for {
		message, err := readMessage(in)
		if err != nil {
			break
		}
		x := c.head()
		if x == nil { // a notification, or the server's reason to end the session
			c.say(nothing, message)
			continue
		}
		last := message[0] == readyForQuery
		c.deliver(x, message, last)
		if last {
			c.pop()
		}
	}
	if silence(c.silence.Load()) == none {
		c.kill()
	}
}

// deliver applies the decision for x to a message of its reply.
func (c *conn) deliver(x *exchange, message []byte, last bool) {
	begins := !x.begun
	x.begun = true
	switch x.fault.Action {
	case LoseReply:
		c.silence.Store(int32(complete))
	case LoseReplyAndCut:
		if last {
			c.kill()
		}
	case CutReply:
		if x.reply = append(x.reply, message...); last {
			c.say(complete, x.reply[:min(x.fault.Bytes, len(x.reply)-1)])
			c.kill()
		}
	case DelayReply:
		if begins && !c.sleep(x.fault.Delay) {
			return
		}
		c.say(complete, message)
	case Pass, DelayRequest, LoseRequest, CutRequest, Freeze:
		c.say(complete, message)
	}
}

// say writes to the client, unless a fault has made the connection as silent as
// unless. An error of a client that is gone is ignored: the server still
// answers its messages.
func (c *conn) say(unless silence, b []byte) {
	if silence(c.silence.Load()) < unless {
		_, _ = c.client.Write(b)
	}
}
