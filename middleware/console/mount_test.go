package console_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	"github.com/httplatch/httplatch/middleware/console"
)

const exposedWarning = "Everybody may be able to open this page."

// A console that every client can reach says so: once in the log, and on each page.
func TestWarnsOfAnOpenMount(t *testing.T) {
	for what, tt := range map[string]struct {
		remote string
		header []string
		tls    *tls.ConnectionState
		warned bool
	}{
		"another machine":                      {remote: "203.0.113.9:1", warned: true},
		"another machine, IPv6":                {remote: "[2001:db8::1]:1", warned: true},
		"TLS without a client's certificate":   {remote: "203.0.113.9:1", tls: &tls.ConnectionState{}, warned: true},
		"an empty credential":                  {remote: "203.0.113.9:1", header: []string{"Authorization", ""}, warned: true},
		"passed on by a proxy on this machine": {remote: "127.0.0.1:1", header: []string{"X-Forwarded-For", "203.0.113.9"}, warned: true},
		"no address at all":                    {remote: "pipe", warned: true},
		"this machine":                         {remote: "127.0.0.1:1"},
		"this machine, IPv6":                   {remote: "[::1]:1"},
		"a Unix socket":                        {remote: "@"},
		"basic or bearer":                      {remote: "203.0.113.9:1", header: []string{"Authorization", "Basic b3A6eA=="}},
		"a session":                            {remote: "203.0.113.9:1", header: []string{"Cookie", "session=1"}},
		"an authenticating proxy":              {remote: "203.0.113.9:1", header: []string{"X-Forwarded-User", "ann"}},
		"middleware that leaves a mark":        {remote: "203.0.113.9:1", header: []string{"Remote-User", "ann"}},
		"a client's certificate":               {remote: "203.0.113.9:1", tls: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}},
	} {
		t.Run(what, func(t *testing.T) {
			var out bytes.Buffer
			logger := lock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil)))

			page := console.New(guardtest.NewLocker(t, memstore.New(), logger))
			for range 3 {
				r := httptest.NewRequest(http.MethodGet, "/console", nil)
				r.RemoteAddr, r.TLS = tt.remote, tt.tls
				r.Header.Set("Accept", "text/html")
				for i := 0; i < len(tt.header); i += 2 {
					r.Header.Set(tt.header[i], tt.header[i+1])
				}
				w := guardtest.Serve(page, r)
				require.Equal(t, http.StatusOK, w.Code)
				require.Equal(t, tt.warned, strings.Contains(w.Body.String(), exposedWarning))
				requireValid(t, w.Body.String())
			}
			if !tt.warned {
				require.Empty(t, out.String())
				return
			}
			var logged map[string]any
			require.NoError(t, json.Unmarshal(out.Bytes(), &logged), "one line: %s", out.String())
			require.Equal(t, "ERROR", logged["level"])
			require.Contains(t, logged["msg"], "mount it behind your authentication")
			require.Equal(t, tt.remote, logged["remote"])
		})
	}
}
