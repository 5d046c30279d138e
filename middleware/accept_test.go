package middleware_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	latch "github.com/httplatch/httplatch/middleware"
)

func wantsPage(accept ...string) bool {
	r, _ := http.NewRequest(http.MethodPost, "/", nil)
	r.Header["Accept"] = accept
	_, ok := (&latch.Problem{Status: 409}).Page(r)
	return ok
}

func TestPrefersPage(t *testing.T) {
	t.Parallel()
	tests := []struct {
		who    string
		accept []string
		page   bool
	}{
		{"no Accept", nil, false},
		{"empty", []string{""}, false},
		{"curl, Go, fetch", []string{"*/*"}, false},
		{"Chromium", []string{chromiumAccept}, true},
		{"Firefox", []string{"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}, true},
		{"Turbo", []string{"text/vnd.turbo-stream.html, text/html, application/xhtml+xml"}, true},
		{"axios", []string{"application/json, text/plain, */*"}, false},
		{"jQuery", []string{"application/json, text/javascript, */*; q=0.01"}, false},
		{"old Java", []string{"text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"}, true},
		{"only HTML", []string{"text/html"}, true},
		{"HTML named, JSON not", []string{"text/html, */*"}, true},
		{"kind named", []string{"text/*, */*"}, true},
		{"both, no preference", []string{"text/html, application/json"}, false},
		{"both kinds", []string{"text/*, application/*"}, false},
		{"HTML less", []string{"text/html;q=0.9, application/json"}, false},
		{"HTML more", []string{"text/html, application/json;q=0.9"}, true},
		{"problem less, json more", []string{"text/html;q=0.5, application/problem+json;q=0.4, application/json;q=0.6"}, false},
		{"problem more, json less", []string{"text/html;q=0.5, application/problem+json;q=0.6, application/json;q=0.4"}, false},
		{"both less", []string{"text/html;q=0.5, application/problem+json;q=0.4, application/json;q=0.3"}, true},
		{"HTML refused", []string{"text/html;q=0, */*"}, false},
		{"everything refused", []string{"*/*;q=0"}, false},
		{"refused by kind, wanted by name", []string{"text/*;q=0, text/html, */*;q=0.1"}, true},
		{"wanted by kind, refused by name", []string{"text/*, text/html;q=0, */*;q=0.1"}, false},
		{"specific before weight", []string{"*/*;q=1, text/html;q=0.2, application/*;q=0.3"}, false},
		{"JSON only by rest", []string{"text/html;q=0.2, */*;q=0.1"}, true},
		{"several lines", []string{"application/json;q=0.5", "text/html"}, true},
		{"case", []string{"TEXT/HTML;Q=0.9, Application/JSON;q=0.8"}, true},
		{"white space", []string{" text/html ; q=0.9 ,\tapplication/json ; q=0.8"}, true},
		{"charset of the page", []string{`text/html;charset="UTF-8"`}, true},
		{"another page", []string{"text/html;level=1, */*;q=0.1"}, false},
		{"JSON with parameters", []string{"text/html;q=0.9, application/json;odata=verbose"}, false},
		{"weight with three places", []string{"text/html;q=0.501, application/json;q=0.5"}, true},
		{"XHTML only", []string{"application/xhtml+xml, */*"}, false},
		{"malformed weights count for nothing", []string{"text/html;q=2, text/html;q=-1, text/html;q=1.001, text/html;q=0.1234, text/html;q=, text/html;q=x, text/html;q=0.x"}, false},
		{"malformed weight of JSON", []string{"text/html;q=0.5, application/json;q=high"}, true},
		{"rubbish", []string{";;,,=,/,text/,/html,\"", "\\"}, false},
	}
	for _, tt := range tests {
		require.Equal(t, tt.page, wantsPage(tt.accept...), tt.who)
	}
}

// FuzzAccept: no header is a reason to fail. A header that names no text and no */* never asks for
// a page, and a client that prefers JSON gets JSON.
func FuzzAccept(f *testing.F) {
	f.Add(chromiumAccept)
	f.Add(`a/b;c="d\",e";q=0.5,*/*;q=0`)
	f.Fuzz(func(t *testing.T, accept string) {
		page := wantsPage(accept)
		if page {
			require.Contains(t, strings.ToLower(accept), "text/")
		}
		require.Equal(t, page, wantsPage(accept, ""), "an empty line changes nothing")
		if strings.Count(accept, `"`) == 0 {
			require.Equal(t, page, wantsPage(strings.Split(accept, ",")...), "lines are one list")
		}
		require.False(t, wantsPage("application/problem+json", accept), "named, at its full weight")
		require.False(t, wantsPage("text/html;q=0", "text/*;q=0", "application/json"))
	})
}
