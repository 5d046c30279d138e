package middleware_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

// Frames of HTTP/2 (RFC 9113, section 6), and their flags.
const (
	dataFrame, headersFrame, resetFrame, settingsFrame, goAwayFrame = 0, 1, 3, 4, 7

	endStream, ack = 1, 1
)

func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(b, flags), stream), payload...)
}

// resets starts an upstream over HTTP/2 without TLS that ends each request with reply, once it has read the whole.
func resets(t *testing.T, requests *atomic.Int64, reply func(stream uint32) []byte) *url.URL {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	serve := func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		in := bufio.NewReader(conn)
		if _, err := in.Discard(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
			return
		}
		_, _ = conn.Write(append(frame(settingsFrame, 0, 0), frame(settingsFrame, ack, 0)...))
		for {
			var head [9]byte
			if _, err := io.ReadFull(in, head[:]); err != nil {
				return
			}
			if _, err := in.Discard(int(binary.BigEndian.Uint32(head[:]) >> 8)); err != nil {
				return
			}
			if kind := head[3]; (kind == dataFrame || kind == headersFrame) && head[4]&endStream != 0 {
				requests.Add(1)
				_, _ = conn.Write(reply(binary.BigEndian.Uint32(head[5:])))
				return
			}
		}
	}
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	return &url.URL{Scheme: "http", Host: listener.Addr().String()}
}

// TestStreamsThatWereNotProcessed: HTTP/2 has two ways to say so, and a server that shuts down uses them. The
// request had no effect, so that its repeat is sent.
func TestStreamsThatWereNotProcessed(t *testing.T) {
	t.Parallel()
	reset := func(code byte) func(uint32) []byte {
		return func(stream uint32) []byte { return frame(resetFrame, 0, stream, 0, 0, 0, code) }
	}
	goAway := func(uint32) []byte { return frame(goAwayFrame, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) }
	for name, tt := range map[string]struct {
		reply func(stream uint32) []byte
		sent  int64
		again string
	}{
		"REFUSED_STREAM": {reset(7), 2, ""},
		"GOAWAY":         {goAway, 2, ""},
		"INTERNAL_ERROR": {reset(2), 1, "#outcome-unknown"},
		"PROTOCOL_ERROR": {reset(1), 1, "#outcome-unknown"},
		"CANCEL":         {reset(8), 1, "#outcome-unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			base := &http.Transport{Protocols: new(http.Protocols)}
			base.Protocols.SetUnencryptedHTTP2(true)
			t.Cleanup(base.CloseIdleConnections)
			l := newLocker(t, memstore.New(), lock.WithRerunAbandoned())
			h := once(l)(proxyTo(t, resets(t, &requests, tt.reply), func(http.RoundTripper) http.RoundTripper { return upstream(base) }))
			require.Equal(t, 502, serve(h, keyed("k")).Code)
			again := serve(h, keyed("k"))
			require.Contains(t, again.Body.String(), tt.again)
			require.Equal(t, tt.sent, requests.Load())
		})
	}
}
