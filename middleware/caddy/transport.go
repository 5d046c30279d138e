package latchcaddy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/headers"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"

	"github.com/httplatch/httplatch/internal/httpmethod"
	"github.com/httplatch/httplatch/middleware"
)

// Transport is the transport of a reverse_proxy behind a guard: another transport with
// [middleware.Upstream] around it.
type Transport struct {
	// The other transport; http unless set.
	TransportRaw json.RawMessage `json:"transport,omitempty" caddy:"namespace=http.reverse_proxy.transport inline_key=protocol"`

	name  string // of inner, while a Caddyfile is read
	inner http.RoundTripper
	send  http.RoundTripper // inner with the guard's view of it
}

// CaddyModule is part of [caddy.Module].
func (Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.reverse_proxy.transport.latch", New: func() caddy.Module { return new(Transport) }}
}

// idleTime is shorter than the five seconds after which Node closes an idle connection: if the
// upstream closes a connection while a request is sent, the outcome of the request is unknown.
const (
	idleTime       = 4 * time.Second
	caddysIdleTime = 2 * time.Minute // of the transport http unless keepalive is set
)

// Provision loads the other transport.
func (t *Transport) Provision(ctx caddy.Context) error {
	if t.TransportRaw == nil {
		t.TransportRaw = json.RawMessage(`{"protocol":"http"}`)
	}
	module, err := ctx.LoadModule(t, "TransportRaw")
	if err != nil {
		return err
	}
	loaded, err := around(module)
	if err == nil {
		t.inner, t.send = loaded.inner, loaded.send
	}
	return err
}

// around returns the transport for requests behind a guard that sends through inner.
func around(inner any) (*Transport, error) {
	t := new(Transport)
	switch inner := inner.(type) {
	case *Transport:
		return nil, errNested
	case *reverseproxy.HTTPTransport:
		if inner.Transport.IdleConnTimeout == caddysIdleTime {
			inner.Transport.IdleConnTimeout = idleTime
		}
		t.inner, t.send = inner, middleware.Upstream(inner, middleware.WithUpstreamHeaders())
	case http.RoundTripper:
		t.inner, t.send = inner, middleware.Upstream(&traced{inner}, middleware.WithUpstreamHeaders())
	default:
		return nil, fmt.Errorf("latch: %T is no transport", inner)
	}
	return t, nil
}

var (
	errNested   = errors.New("latch: the transport latch is in itself: remove one of them")
	errNoAnswer = errors.New("latch: the upstream has ended the connection without an answer")
	errSentYet  = errors.New("latch: the request may have reached an upstream before, and is not sent again")
)

// RoundTrip sends a guarded request once. If there was a connection, the first attempt may have had
// its effect, and a retry of the reverse_proxy could have it a second time.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r.Context())
	if x == nil || httpmethod.Safe(r.Method) {
		return unmarked(t.send.RoundTrip(r))
	}
	if slices.Contains(x.sent, t) {
		return nil, errSentYet
	}
	answer, err := unmarked(t.send.RoundTrip(r))
	if !noConnection(err) {
		x.sent = append(x.sent, t)
	}
	return answer, err
}

func noConnection(err error) bool {
	_, is := errors.AsType[reverseproxy.DialError](err)
	return is
}

// unmarked takes the mark of the module's own errors from an answer.
func unmarked(answer *http.Response, err error) (*http.Response, error) {
	if err == nil {
		answer.Header.Del(failedHeader)
	}
	return answer, err
}

// traced calls the hooks of package httptrace for a transport that does not, as fastcgi.
type traced struct{ http.RoundTripper }

// RoundTrip is part of [http.RoundTripper].
func (t *traced) RoundTrip(r *http.Request) (*http.Response, error) {
	hooks := httptrace.ContextClientTrace(r.Context())
	if hooks != nil && hooks.GetConn != nil {
		hooks.GetConn("")
	}
	answer, err := t.RoundTripper.RoundTrip(r)
	if hooks != nil && hooks.GotConn != nil && !noConnection(err) {
		hooks.GotConn(httptrace.GotConnInfo{})
	}
	switch {
	case err != nil:
	case len(answer.Header) == 0: // fastcgi takes the end of a broken connection for an empty answer
		return nil, errors.Join(errNoAnswer, answer.Body.Close())
	case answer.Header.Get("Content-Length") == "" && len(answer.TransferEncoding) == 0:
		// Its end looks like the end of a connection that has broken.
		answer.ContentLength, answer.ProtoMajor, answer.ProtoMinor = -1, 1, 0
	}
	return answer, err
}

// UnmarshalCaddyfile reads "transport latch [name] { ... }" with the fields of the other
// transport.
func (t *Transport) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	t.name = "http"
	if d.NextArg() {
		t.name = d.Val()
	}
	if t.name == "latch" {
		return d.WrapErr(errNested)
	}
	module, err := caddyfile.UnmarshalModule(d, "http.reverse_proxy.transport."+t.name)
	if err != nil {
		return err
	}
	inner, ok := module.(http.RoundTripper)
	if !ok {
		return d.Errf("latch: %T is no transport", module)
	}
	t.inner = inner
	t.encode()
	return nil
}

// encode brings the JSON up to date with a transport that was read from a Caddyfile.
func (t *Transport) encode() {
	if !reflect.DeepEqual(t.inner, new(reverseproxy.HTTPTransport)) {
		t.TransportRaw = caddyconfig.JSONModuleObject(t.inner, "protocol", t.name, nil)
	}
}

// TLSEnabled is part of [reverseproxy.TLSTransport].
func (t *Transport) TLSEnabled() bool {
	inner, ok := t.inner.(reverseproxy.TLSTransport)
	return ok && inner.TLSEnabled()
}

// EnableTLS is part of [reverseproxy.TLSTransport].
func (t *Transport) EnableTLS(base *reverseproxy.TLSConfig) error {
	inner, ok := t.inner.(reverseproxy.TLSTransport)
	if !ok {
		return fmt.Errorf("latch: the transport %s has no TLS", t.name)
	}
	if err := inner.EnableTLS(base); err != nil {
		return err
	}
	t.encode()
	return nil
}

// EnableH2C is part of [reverseproxy.H2CTransport].
func (t *Transport) EnableH2C() error {
	inner, ok := t.inner.(reverseproxy.H2CTransport)
	if !ok {
		return fmt.Errorf("latch: the transport %s has no h2c", t.name)
	}
	if err := inner.EnableH2C(); err != nil {
		return err
	}
	t.encode()
	return nil
}

// ProxyProtocolEnabled is part of [reverseproxy.ProxyProtocolTransport].
func (t *Transport) ProxyProtocolEnabled() bool {
	inner, ok := t.inner.(reverseproxy.ProxyProtocolTransport)
	return ok && inner.ProxyProtocolEnabled()
}

// OverrideHealthCheckScheme is part of [reverseproxy.HealthCheckSchemeOverriderTransport].
func (t *Transport) OverrideHealthCheckScheme(base *url.URL, port string) {
	if inner, ok := t.inner.(reverseproxy.HealthCheckSchemeOverriderTransport); ok {
		inner.OverrideHealthCheckScheme(base, port)
	}
}

// DefaultBufferSizes is part of [reverseproxy.BufferedTransport].
func (t *Transport) DefaultBufferSizes() (request, response int64) {
	if inner, ok := t.inner.(reverseproxy.BufferedTransport); ok {
		return inner.DefaultBufferSizes()
	}
	return 0, 0
}

// RequiresContentLength is part of [reverseproxy.ContentLengthRequiredTransport].
func (t *Transport) RequiresContentLength() bool {
	inner, ok := t.inner.(reverseproxy.ContentLengthRequiredTransport)
	return ok && inner.RequiresContentLength()
}

// RequestHeaderOps is part of [reverseproxy.RequestHeaderOpsTransport].
func (t *Transport) RequestHeaderOps() *headers.HeaderOps {
	if inner, ok := t.inner.(reverseproxy.RequestHeaderOpsTransport); ok {
		return inner.RequestHeaderOps()
	}
	return nil
}

var (
	_ caddy.Provisioner                                = (*Transport)(nil)
	_ caddyfile.Unmarshaler                            = (*Transport)(nil)
	_ reverseproxy.TLSTransport                        = (*Transport)(nil)
	_ reverseproxy.H2CTransport                        = (*Transport)(nil)
	_ reverseproxy.ProxyProtocolTransport              = (*Transport)(nil)
	_ reverseproxy.HealthCheckSchemeOverriderTransport = (*Transport)(nil)
	_ reverseproxy.BufferedTransport                   = (*Transport)(nil)
	_ reverseproxy.ContentLengthRequiredTransport      = (*Transport)(nil)
	_ reverseproxy.RequestHeaderOpsTransport           = (*Transport)(nil)
)
