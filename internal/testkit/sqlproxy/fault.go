package sqlproxy

import (
	"fmt"
	"strings"
	"time"
)

// Action is applied to an exchange.
type Action uint8

const (
	// Pass forwards it and its reply.
	Pass Action = iota
	// LoseRequest never forwards it, nor anything after it on its connection, and
	// the client receives nothing more. When the client closes the connection, PostgreSQL
	// is notified and rolls back. MySQL is not, as with Freeze.
	LoseRequest
	// LoseReply forwards it, and the client receives nothing more on its connection.
	LoseReply
	// LoseReplyAndCut forwards it, awaits the whole reply, and closes both sides
	// without a byte of it. Over MySQL, it awaits the first part of the reply.
	LoseReplyAndCut
	// DelayRequest forwards it after Fault.Delay, even if the client has closed its connection
	// meanwhile: the server is notified of the end after the request.
	DelayRequest
	// DelayReply forwards it at once, and its reply Fault.Delay after the first
	// byte of the reply has come.
	DelayReply
	// CutRequest does not forward it, and closes both sides.
	CutRequest
	// CutReply forwards it, awaits the whole reply, passes the first Fault.Bytes of
	// it, never all, and closes both sides. Over MySQL, it passes half of the first part.
	CutReply
	// Freeze forwards nothing more in either direction, and neither side is
	// notified that the other has closed the connection, until the proxy ends.
	// The server keeps the session, with its transaction and its locks.
	Freeze
	// FailReply forwards it, and answers with an error of a server that ends. Over MySQL only.
	FailReply
)

const actions = int(FailReply) + 1

var actionNames = [actions]string{
	"pass", "lose request", "lose reply", "lose reply and cut", "delay request", "delay reply", "cut request", "cut reply", "freeze", "fail reply",
}

// String returns the name of a in reports.
func (a Action) String() string {
	if int(a) < actions {
		return actionNames[a]
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// Fault is an Action with its parameters. The zero Fault lets the exchange pass.
type Fault struct {
	Action Action
	Delay  time.Duration // of DelayRequest and DelayReply
	Bytes  int           // of CutReply
}

// Exchange is the messages that a client sends until it waits for an answer.
type Exchange struct {
	// Conn numbers the connections of the proxy, and Ordinal the exchanges of one,
	// both from 1.
	Conn, Ordinal int
	// SQL are the texts of the statements that it executes, in their order. Several
	// statements in one simple Query are one text.
	SQL []string
	// Prepared are the texts of the statements that it prepares, executed or not.
	Prepared []string
	// Cancel says that it is a CancelRequest, which has no reply. An Action
	// that neither passes nor delays it loses it.
	Cancel bool
}

// Begins reports whether a statement that x executes begins with a word, such as
// "COMMIT", in any case.
func (x *Exchange) Begins(word string) bool {
	for _, sql := range x.SQL {
		if words := strings.FieldsFunc(sql, func(r rune) bool { return r == ';' || r <= ' ' }); len(words) > 0 && strings.EqualFold(words[0], word) {
			return true
		}
	}
	return false
}

// Contains reports whether a statement that x executes contains a text, in any case.
func (x *Exchange) Contains(text string) bool {
	for _, sql := range x.SQL {
		if strings.Contains(strings.ToLower(sql), strings.ToLower(text)) {
			return true
		}
	}
	return false
}
