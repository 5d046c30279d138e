package pgtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/process"
)

// query runs statements without parameters as superuser, on its own connection, and returns their
// rows. It is a small client, because this module has no driver.
func query(addr, db, sql string) (rows [][]string, err error) {
	conn, err := net.DialTimeout("tcp", addr, process.Patience) //nolint:noctx // on this machine
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(process.Patience)) // a connection that has ended fails below
	const version3 = "\x00\x03\x00\x00"
	_, err = conn.Write(message("", version3+"user\x00"+superuser+"\x00database\x00"+db+"\x00\x00"))
	r, asked := bufio.NewReader(conn), false
	var failed error
	for err == nil {
		var head [5]byte // type and length
		if _, err = io.ReadFull(r, head[:]); err != nil {
			break
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err = io.ReadFull(r, body); err != nil {
			break
		}
		switch head[0] {
		case 'D':
			rows = append(rows, columns(body))
		case 'E':
			failed = errors.New(reason(body))
		case 'Z': // ready for a query
			if asked {
				return rows, failed
			}
			asked = true
			_, err = conn.Write(message("Q", sql+"\x00"))
		}
	}
	return nil, errors.Join(failed, err)
}

func message(kind, body string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte(kind), uint32(4+len(body))), body...) //nolint:gosec // statements of tests
}

// columns returns the texts of a row, "" for NULL.
func columns(body []byte) []string {
	row := make([]string, binary.BigEndian.Uint16(body))
	body = body[2:]
	for i := range row {
		n := int32(binary.BigEndian.Uint32(body)) //nolint:gosec // -1 is NULL
		body = body[4:]
		row[i] = string(body[:max(n, 0)])
		body = body[max(n, 0):]
	}
	return row
}

// reason returns the message of an error.
func reason(body []byte) string {
	for field := range bytes.SplitSeq(body, []byte{0}) {
		if len(field) > 0 && field[0] == 'M' {
			return string(field[1:])
		}
	}
	return "pgtest: an error without a message"
}
