// Package httpmethod knows which methods of HTTP ask for no effect.
package httpmethod

// Safe reports whether requests with this method ask for no effect: the methods that the registry
// of RFC 9110, section 16.1 lists as safe. PRI, which no request has, is not among them. Methods
// have capitals: "get" is another method, which nothing is known about.
func Safe(method string) bool {
	switch method {
	case "GET", "HEAD", "OPTIONS", "TRACE", // RFC 9110
		"QUERY",                        // RFC 10008
		"PROPFIND", "REPORT", "SEARCH": // WebDAV: RFC 4918, RFC 3253, RFC 5323
		return true
	}
	return false
}
