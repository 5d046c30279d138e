package console

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// openMount detects that every client can reach the console. It does not know the middleware in
// front, but the request of an authenticated client usually has a sign of the authentication.
type openMount struct{ once sync.Once }

// signs are headers that a browser sends, or a proxy sets, for an authenticated client. The
// middleware in front has to check their values.
var signs = []string{
	"Authorization", "Cookie",
	"Remote-User", "X-Remote-User", "X-Forwarded-User", "X-Forwarded-Email", "X-Auth-Request-User",
	"Cf-Access-Jwt-Assertion", "X-Goog-Iap-Jwt-Assertion", "X-Amzn-Oidc-Data", "X-Ms-Client-Principal",
}

// check reports whether r came from another machine without a sign, and logs the first
// one.
func (m *openMount) check(r *http.Request, logger *slog.Logger) bool {
	if signed(r) || local(r) {
		return false
	}
	m.once.Do(func() {
		logger.LogAttrs(r.Context(), slog.LevelError,
			"httplatch: the console was reached from another machine without credentials: every client that can connect may read keys "+
				"and free them; mount it behind your authentication (or have that set the request header Remote-User, if it leaves no trace)",
			slog.String("remote", r.RemoteAddr))
	})
	return true
}

func signed(r *http.Request) bool {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return true
	}
	for _, name := range signs {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return false
}

// local reports whether r comes from this machine. A request through a proxy comes from
// elsewhere, wherever the proxy runs.
func local(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "Via"} {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr == "@" || r.RemoteAddr == "" // a Unix socket
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
