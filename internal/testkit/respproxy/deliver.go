package respproxy

import (
	"slices"
	"time"
)

// lingerTimeout is the time for which a closed connection is still read, if the
// client does not close it too.
const lingerTimeout = time.Second

// deliver passes replies on to the client, in the order of the commands, until
// there are no more: the client is gone or its connection ended, and all its
// commands are answered, or the server is gone.
func (c *conn) deliver() {
	defer close(c.delivered)
	defer func() { _ = c.server.Close() }()
	for {
		c.deliverLocal()
		if _, done := c.open.head(); done {
			c.shut(c.last)
			return
		}
		select {
		case <-c.open.wake:
		case r, ok := <-c.replies:
			if !ok {
				if c.last != Hang { // a connection that hangs does so without a server too
					c.shut(c.last)
				}
				return
			}
			c.deliverReply(r)
		case <-c.done:
			return
		}
	}
}

// deliverLocal answers the oldest exchanges, up to the first one that the
// server answers.
func (c *conn) deliverLocal() {
	for {
		x, _ := c.open.head()
		if x == nil || !x.local() {
			return
		}
		c.act(x.action, nil)
		c.open.pop()
	}
}

func (c *conn) deliverReply(r reply) {
	c.deliverLocal()
	x, _ := c.open.head()
	if r.push || x == nil { // x is nil for a message of a RESP2 subscription
		c.write(r.raw)
		return
	}
	x.answer = r.raw
	c.act(x.action, r.raw)
	c.open.pop()
}

// act answers one command as its rule demands.
func (c *conn) act(a Action, raw []byte) {
	switch a.kind {
	case pass, hold:
		c.write(raw)
	case translate:
		c.write(a.translation.answer(raw))
	case delayReply:
		c.sleep(a.delay)
		c.write(raw)
	case cutReply:
		c.write(raw[:min(a.bytes, len(raw)-1)])
		c.end(Close)
	case splitReply:
		for piece := range slices.Chunk(raw, a.bytes) {
			c.write(piece)
		}
	case ownReply:
		c.write([]byte(a.text))
	case errorAfterApply:
		c.write([]byte("-" + a.text + "\r\n"))
	case swallow, drop, cutCommand:
		c.end(a.end)
	}
}

func (c *conn) write(b []byte) {
	if c.mute || !c.proxy.freeze.wait(c.done) {
		return
	}
	if _, err := c.client.Write(b); err != nil {
		c.mute = true // the client is gone: its commands are still answered, and the replies dropped
	}
}

// end sends nothing more to the client. Unless it hangs, its connection is shut
// when all its earlier commands are answered.
func (c *conn) end(how End) {
	if c.mute {
		return
	}
	c.mute, c.last = true, how
	if how != Hang && c.intake.end() {
		c.open.close()
	}
}

// shut ends the client's connection.
func (c *conn) shut(how End) {
	if how == Reset {
		_ = c.client.SetLinger(0)
		_ = c.client.Close()
		return
	}
	_ = c.client.CloseWrite()
	_ = c.client.SetReadDeadline(time.Now().Add(lingerTimeout))
}

func (c *conn) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.done:
	}
}
