package middleware_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// servePipes serves h as startServer does, over connections on which synctest
// can wait, for any URL.
func servePipes(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(p) }()
	t.Cleanup(func() {
		require.NoError(t, server.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	return &http.Client{Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
}

// pipes is a listener that is dialled without a network.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }
