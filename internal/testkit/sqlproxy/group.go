package sqlproxy

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// group collects the messages of a connection's exchanges, and remembers the texts
// of its prepared statements.
type group struct {
	statements map[string]string // by name
	portals    map[string]string // text by name

	raw      []byte
	executed []string
	prepared []string
}

func newGroup() *group {
	return &group{statements: map[string]string{}, portals: map[string]string{}}
}

// add takes the next message. ended says that it is the last of its exchange;
// alone, that it belongs to no exchange, or to one that was forwarded already: a
// password, data of COPY, or the end of the session.
func (g *group) add(message []byte) (ended, alone bool, err error) {
	body := message[5:]
	switch message[0] {
	case query:
		var sql string
		err = texts(body, &sql)
		g.executed = append(g.executed, sql)
	case parse:
		var name, sql string
		err = texts(body, &name, &sql)
		g.statements[name] = sql
		g.prepared = append(g.prepared, sql)
	case bind:
		var portal, statement string
		err = texts(body, &portal, &statement)
		g.portals[portal] = g.statements[statement]
	case execute:
		var portal string
		err = texts(body, &portal)
		g.executed = append(g.executed, g.portals[portal])
	case closing:
		var closed string // kind (statement or portal) and name
		err = texts(body, &closed)
		if name, ok := strings.CutPrefix(closed, "S"); ok {
			delete(g.statements, name)
		}
	case describe, flush, syncing, functionCall:
	default:
		return false, true, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("sqlproxy: message %q: %w", message[0], err)
	}
	g.raw = append(g.raw, message...)
	switch message[0] {
	case query, functionCall, syncing:
		ended = true
	}
	return ended, false, nil
}

var errText = errors.New("a text without an end")

// texts reads the texts at the beginning of body. Each ends with a byte 0.
func texts(body []byte, into ...*string) error {
	for _, text := range into {
		before, after, ok := bytes.Cut(body, []byte{0})
		if !ok {
			return errText
		}
		*text, body = string(before), after
	}
	return nil
}

// take returns the exchange that has ended and its bytes, and begins a new one.
func (g *group) take(conn, ordinal int) (*Exchange, []byte) {
	x, raw := &Exchange{Conn: conn, Ordinal: ordinal, SQL: g.executed, Prepared: g.prepared}, g.raw
	g.raw, g.executed, g.prepared = nil, nil, nil
	return x, raw
}
