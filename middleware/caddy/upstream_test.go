package latchcaddy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOneOrder repeats an order whose first answer did not arrive as it should. Through a plain
// reverse_proxy each repeat is another order.
func TestOneOrder(t *testing.T) {
	tests := map[string]struct {
		first int    // the status of the first answer
		again string // in the answer to the repeat
		once  int    // orders, of both
	}{
		"":               {201, `order 1 of "tea"`, 1},
		"in chunks":      {201, "order 1", 1},
		"redirect":       {303, "", 1},
		"lose the reply": {502, "#outcome-unknown", 1},
		"be late":        {504, "#outcome-unknown", 1},
		"cut":            {502, "#outcome-unknown", 1},
		"fail":           {500, `order 2 of "tea"`, 2},
	}
	for do, tt := range tests {
		of := func(caddyfile string) string { return caddyfile }
		if do == "be late" {
			of = impatient
		}
		t.Run("guarded/"+do, func(t *testing.T) {
			s := newShop(t)
			g := start(t, of(guarded(s, "memory")))
			require.Equal(t, tt.first, g.order("k", do).status)
			repeated := g.request(t.Context(), "k", "")
			again := send(t, repeated)
			require.Contains(t, again.body, tt.again)
			require.Equal(t, tt.once, s.placed())
			if tt.first < 400 {
				require.Equal(t, tt.first, again.status)
				require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
			}
		})
		t.Run("plain/"+do, func(t *testing.T) {
			s := newShop(t)
			g := start(t, of(plain(s)))
			_ = g.order("k", do)
			_ = g.order("k", "")
			require.Equal(t, 2, s.placed(), "this test can see a second order")
		})
	}
}

// TestRetriesOfTheProxy: lb_retry_match repeats a POST by itself. The transport sends it once,
// unless there was no connection.
func TestRetriesOfTheProxy(t *testing.T) {
	retrying := func(s *shop, transport string) string {
		latch := ""
		if transport == "latch" {
			latch = "latch {\nidempotent {\nscope global\nkey idempotency-key\n}\n}"
		}
		return `{
	latch {
		store memory
	}
}
http://127.0.0.1:%PORT {
	` + latch + `
	reverse_proxy 127.0.0.1:1 ` + s.Listener.Addr().String() + ` {
		transport ` + transport + `
		lb_policy round_robin
		lb_retries 4
		lb_try_interval 1ms
		lb_retry_match {
			method POST
		}
	}
}`
	}
	s := newShop(t)
	g := start(t, retrying(s, "latch"))
	require.Equal(t, 201, g.order("a", "").status, "the other upstream takes no connection")
	require.Equal(t, 502, g.order("b", "lose the reply").status)
	require.Contains(t, g.order("b", "").body, "#outcome-unknown")
	require.Equal(t, 2, s.placed())

	s = newShop(t)
	g = start(t, retrying(s, "http"))
	require.Equal(t, 201, g.order("a", "").status)
	require.Equal(t, 502, g.order("b", "lose the reply").status)
	require.Greater(t, s.placed(), 2, "this test can see a second order")
}

// TestHeadersOfTheUpstream: it is given the key of the order, and says whether it has placed it;
// and a client that sends the headers of either is not heard.
func TestHeadersOfTheUpstream(t *testing.T) {
	for name, tt := range map[string]struct {
		says  string // Latch-Commit
		again string // in the answer to the repeat
		once  int
	}{
		"it says nothing":           {"", "#outcome-unknown", 1},
		"it has placed it":          {"yes", "failed", 1},
		"it has not":                {"no", "failed", 2},
		"it says something unknown": {"maybe", "#outcome-unknown", 1},
	} {
		t.Run(name, func(t *testing.T) {
			var got []http.Header
			s := newShop(t)
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = append(got, r.Header)
				if tt.says != "" {
					w.Header().Set("Latch-Commit", tt.says)
				}
				http.Error(w, "failed", http.StatusBadGateway)
			})
			g := start(t, guarded(s, "memory"))
			for _, again := range []string{"failed", tt.again} {
				r := g.request(t.Context(), "k", "")
				r.Header["Latch-Key"], r.Header["Latch_Key"] = []string{"forged"}, []string{"forged"}
				answer := send(t, r)
				require.Contains(t, answer.body, again)
				require.NotContains(t, answer.header, "Latch-Commit")
			}
			require.Len(t, got, tt.once)
			for _, h := range got {
				require.Len(t, h.Get("Latch-Key"), 43)
				require.Equal(t, got[0].Get("Latch-Key"), h.Get("Latch-Key"))
				require.Equal(t, "1", h.Get("Latch-Attempt"))
				require.NotContains(t, h, "Latch_Key")
			}
		})
	}
}

// TestLockWhileTheUpstreamIsLate: the gateway has given up, and the upstream has not. With
// unknown_hold the next order is refused, and without it there are two at once.
func TestLockWhileTheUpstreamIsLate(t *testing.T) {
	for name, tt := range map[string]struct {
		hold  string
		again int
		once  int
	}{
		"unknown_hold": {"unknown_hold 1h", 409, 1},
		"without":      {"", 201, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			g := start(t, strings.Replace(impatient(guarded(s, "memory")), `idempotent orders {
			scope {header.X-User}
			key   optional-idempotency-key
`, `lock user {
			key {header.X-User}
			`+tt.hold+`
`, 1))
			require.Equal(t, 504, g.order("", "be late").status)
			require.Equal(t, tt.again, g.order("", "").status)
			require.Equal(t, tt.once, s.placed())
		})
	}
}
