package latchcaddy_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGuards(t *testing.T) {
	const once = "idempotent {\nscope {header.X-User}\nkey idempotency-key\n"
	as := func(media, body string) func(first, second *http.Request) {
		return func(first, second *http.Request) {
			for _, r := range []*http.Request{first, second} {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
				r.Header.Set("Content-Type", media)
			}
		}
	}
	for name, tt := range map[string]struct {
		directives string
		change     func(first, second *http.Request)
		status     []int
		says       string // in the second answer
		orders     int
	}{
		"idempotent": {"latch {\n" + once + "}\n}", nil, []int{201, 201}, `order 1 of "tea"`, 1},
		"another user": {"latch {\n" + once + "}\n}", func(_, second *http.Request) {
			second.Header.Set("X-User", "43")
		}, []int{201, 201}, `order 2 of "tea"`, 2},
		"no user": {"latch {\n" + once + "}\n}", func(_, second *http.Request) { second.Header.Del("X-User") }, []int{201, 400}, "#key-missing", 1},
		"another site": {"latch {\n" + once + "}\n}", func(_, second *http.Request) {
			second.Host = strings.Replace(second.URL.Host, "127.0.0.1", "localhost", 1)
		}, []int{201, 201}, `order 2 of "tea"`, 2},
		"the site in capitals": {"latch {\n" + once + "}\n}", func(first, second *http.Request) {
			first.Host = strings.Replace(second.URL.Host, "127.0.0.1", "localhost", 1)
			second.Host = strings.ToUpper(first.Host)
		}, []int{201, 201}, `order 1 of "tea"`, 1},
		"a user who logs in": {
			"basic_auth {\nbob " + hiccup + "\n}\nlatch {\nidempotent {\nscope {http.auth.user.id}\nkey idempotency-key\n}\n}",
			func(_, second *http.Request) { second.Header.Set("X-User", "43") },
			[]int{201, 201},
			`order 1 of "tea"`, 1,
		},
		"dedupe":                 {"latch {\ndedupe {\nscope {header.X-User}\nwindow 10s\n}\n}", nil, []int{201, 201}, `order 1 of "tea"`, 1},
		"a lock with a cooldown": {"latch {\nlock user {\nkey {header.X-User}\ncooldown 10s\ncooldown_status 409\n}\n}", nil, []int{201, 409}, "#cooling-down", 1},
		"both": {"latch {\n" + once + "}\nlock user {\nkey {header.X-User}\ncooldown 10s\n}\n}", func(_, second *http.Request) {
			second.Header.Set("Idempotency-Key", "k2")
		}, []int{201, 429}, "#cooling-down", 1},
		"two directives": {"latch {\n" + once + "}\n}\nlatch {\nlock user {\nkey {header.X-User}\ncooldown 10s\n}\n}", nil, []int{201, 201}, `order 1 of "tea"`, 1},
		"refuse":         {"latch {\nrefuse\n}", func(first, _ *http.Request) { first.Header.Del("Idempotency-Key") }, []int{201, 400}, "#key-not-supported", 1},
		"another route":  {"latch /payments {\n" + once + "}\n}", nil, []int{201, 201}, `order 2 of "tea"`, 2},
		"acp, without a key": {"latch {\n" + once + "contract acp\n}\n}", func(_, second *http.Request) {
			second.Header.Del("Idempotency-Key")
		}, []int{400, 400}, "idempotency_key_required", 0},
		"stripe, another body": {"latch {\n" + once + "contract stripe\n}\n}", func(_, second *http.Request) {
			second.URL.RawQuery = "other"
		}, []int{201, 400}, "idempotency_error", 1},
		"several words": {
			"latch {\nidempotent {\nscope {header.X-User} {path}\nkey form:order\n}\n}",
			as("application/x-www-form-urlencoded", "order=7"),
			[]int{201, 201},
			`order 1 of "order=7"`, 1,
		},
		"json": {
			"latch {\nlock order {\nkey json:/order\ncooldown 10s\n}\n}",
			as("application/json", `{"order":7}`),
			[]int{201, 429},
			"#cooling-down", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t)
			g := start(t, site(s, tt.directives+"\nreverse_proxy %SHOP"))
			first, second := g.request(t.Context(), "k", ""), g.request(t.Context(), "k", "")
			for _, r := range []*http.Request{first, second} {
				r.SetBasicAuth("bob", "hiccup")
			}
			if tt.change != nil {
				tt.change(first, second)
			}
			a, b := send(t, first), send(t, second)
			require.Equal(t, tt.status[0], a.status, a.body)
			require.Equal(t, tt.status[1], b.status, b.body)
			require.Contains(t, b.body, tt.says)
			require.Equal(t, tt.orders, s.placed())
		})
	}
}

// TestErrorsOfHandlers: an error of a handler of Caddy is the answer that handle_errors makes of
// it, also for a repeat, and is kept or not as its status says.
func TestErrorsOfHandlers(t *testing.T) {
	s := newShop(t)
	g := start(t, site(s, `latch {
		idempotent {
			scope global
			key   idempotency-key
		}
		lock user {
			key global
		}
	}
	error /orders "sold out" {header.X-Do}
	handle_errors {
		header X-Handled {err.status_code}
		respond "sorry: {err.message}" {err.status_code}
	}`))
	first := g.order("kept", "410")
	require.Equal(t, []any{410, "sorry: sold out", "410"}, []any{first.status, first.body, first.header.Get("X-Handled")})
	require.Empty(t, first.header.Get("Latch-Failed"))
	again := g.order("kept", "404")
	require.Equal(t, []any{410, "410", "true"}, []any{again.status, again.header.Get("X-Handled"), again.header.Get("Idempotent-Replayed")})

	require.Equal(t, 500, g.order("not-kept", "500").status)
	require.Equal(t, 404, g.order("not-kept", "404").status)
	require.Zero(t, s.placed())
}

// TestUpstreamsMarkNoErrors: the mark of an error is the module's own.
func TestUpstreamsMarkNoErrors(t *testing.T) {
	s := newShop(t)
	inner := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Latch-Failed", "1")
		inner.ServeHTTP(w, r)
	})
	g := start(t, guarded(s, "memory"))
	for range 2 {
		got := g.order("k", "")
		require.Equal(t, 201, got.status)
		require.Equal(t, `order 1 of "tea"`, got.body)
	}
}

// TestMistakes: a Caddyfile with mistakes says where each is, and what to write.
func TestMistakes(t *testing.T) {
	const app = "{\nlatch {\nstore memory\n}\n}\n"
	guard := func(lines string) string { return app + "http://127.0.0.1:%PORT {\nlatch {\n" + lines + "\n}\n}" }
	tests := map[string][]string{
		"{\nlatch {\nprefix shop:\n}\n}":                              {"there is no store: add store redis://localhost:6379"},
		"{\nlatch {\nstore memory\nstorr x\n}\n}":                     {`there is no option "storr": use one of prefix, seal, store, table`},
		"{\nlatch {\nstore a b\n}\n}":                                 {"store has 2 values: write one"},
		guard(""):                                                     {"there is no guard: add idempotent, dedupe, lock or refuse"},
		strings.Replace(guard("refuse"), app, "{\n}\n", 1):            {"there is no store: add { latch { store redis://localhost:6379 } } to the global options", "at Caddyfile:"},
		"{\nlatch {\nstore memory\nstore memory\n}\n}":                {"there are two lines with store: remove one of them"},
		"{\nlatch {\nstore memory\n}\nlatch {\nstore redis://a\n}\n}": {"the global options have latch twice: remove one of them"},
		guard("idempotent /orders* {\nscope global\n}"):               {`"/orders*" would be the name of the guard, and not a matcher: write latch /orders* { idempotent { ... } }`},
		guard("idempotent {\nkind lock\n}"):                           {`there is no kind: write idempotent, dedupe or lock, and a name behind it`},
		guard("lock user {\nkey global\ncooldown_status 429\n}"):      {"add cooldown, like 2s, or remove it"},
		guard("lock user {\nkey global\nxyzzyxyzzy 1\n}"):             {"use one of body_first, "},
		guard("idempotnt"):                                            {`there is no guard "idempotnt": use idempotent, dedupe, lock or refuse`},
		guard("lock {\nkey global\n}"):                                {`a lock has no name: say what its key is, like "lock user"`},
		guard("idempotent {\nscope {header.X\n}"):                     {"scope"},
		guard("idempotent {\nscope\n}"):                               {`guard "idempotent", scope: write one value behind it`},
		guard("refuse {\nscope global\n}"):                            {`"scope" is for other guards than refuse: remove it`},
		guard("dedupe {\nscope a\nscope b\n}"):                        {"has scope twice: remove one of them"},
		guard("lock user {\nkey {http.request.body}\n}"):              {"would take the body from the handler: write json:/pointer or form:field"},
		guard("lock user {\nkey {header.A}{header.B}\n}"):             {"two placeholders in a word are ambiguous: write a blank between them"},
		guard("lock user {\nkey user\n}"):                             {`"user" is no key: write a placeholder like {http.auth.user.id}, or idempotency-key`},
		guard("lock user {\nkey json:order\n}"):                       {"json:order"},
		guard("idempotent orders {\nscope {header.X-User}\nkey idempotency-key\ncontract acp\nkeep 1h\n}"): {
			`:22: latch: guard "orders", keep: its contract demands that answers are kept for 24h0m0s or longer, and they are kept for 1h0m0s`,
		},
		guard("idempotent orders {\nscope {header.X-User}\nwait 5\nleese 1s\ncontract paypal\nfinal_below 40x\nfail_open perhaps\n}"): {
			`:18: latch: guard "orders": it has no key, which guards of kind idempotent need: add it`,
			`:20: latch: guard "orders", wait: 5 is not a duration: write a number with a unit, like 30s, 500ms or 24h`,
			`:21: latch: guard "orders": there is no field "leese": write lease`,
			`:22: latch: guard "orders", contract: "paypal" is not a known contract: write acp, ucp or stripe`,
			`:23: latch: guard "orders", final_below: "40x" is not a status: write a number, like 400`,
			`:24: latch: guard "orders", fail_open: "perhaps" is not true or false: write one of them`,
		},
	}
	for text, want := range tests {
		_, err := (&gateway{t: t}).adapted(text)
		require.Error(t, err, text)
		for _, part := range want {
			require.ErrorContains(t, err, part)
		}
	}
}

// TestStoresThatCannotBe are found without a server, and with their line.
func TestStoresThatCannotBe(t *testing.T) {
	for options, want := range map[string]string{
		"store redis://localhost:99999":     `Caddyfile:13: latch: store: URL: invalid port "99999"`,
		"store redis//localhost":            "Caddyfile:13: latch: store: URL: malformed",
		"store postgres://u@h:99999/db":     "Caddyfile:13: latch: store: the URL cannot be read",
		"store postgresx://h/db":            "Caddyfile:13: latch: store: this is no store: write redis://host:6379",
		"store memory\ntable x":             "Caddyfile:14: latch: table: it is for a store in PostgreSQL",
		"prefix x\nstore memory":            "Caddyfile:13: latch: prefix: it is for a store in Redis",
		"store postgres://a/b\nprefix x":    "Caddyfile:14: latch: prefix: it is for a store in Redis",
		"store postgres://a/b\ntable a.b.c": "Caddyfile:14: latch: table: ",
		"store memory\nseal " + "c2hvcnQ=":  "Caddyfile:14: latch: seal: key 1 is no base64 of 32 bytes",
		"store memory\nseal \"{$NO_SUCH}\"": "Caddyfile:14: latch: seal: key 1 is no base64 of 32 bytes",
	} {
		_, err := (&gateway{t: t}).adapted("{\nlatch {\n" + options + "\n}\n}\nhttp://127.0.0.1:1 {\nrespond ok\n}")
		require.ErrorContains(t, err, want, options)
	}
}

// TestLifetimeHeader: a switch may stand alone.
func TestLifetimeHeader(t *testing.T) {
	s := newShop(t)
	g := start(t, site(s, "latch {\nidempotent {\nscope {header.X-User}\nkey idempotency-key\nkeep 48h\nlifetime_header\n}\n}\nreverse_proxy %SHOP"))
	require.Equal(t, "172800", g.order("k", "").header.Get("Idempotency-Key-Lifetime"))
	require.Regexp(t, "^1727[0-9]{2}$", g.order("k", "").header.Get("Idempotency-Key-Lifetime"))
}

// TestMistakesWithoutLines are found when a configuration is loaded, as it is by caddy validate.
func TestMistakesWithoutLines(t *testing.T) {
	handler := func(guards string) string {
		return `{"admin": {"disabled": true}, "apps": {"latch": {"store": "memory"}, "http": {"servers": {"s": {"listen": ["127.0.0.1:0"],
			"routes": [{"handle": [{"handler": "latch", "guards": ` + guards + `}]}]}}}}}`
	}
	app := func(fields string) string {
		return `{"admin": {"disabled": true}, "apps": {"latch": {` + fields + `}}}`
	}
	for config, want := range map[string]string{
		handler(`[]`):               "there is no guard",
		handler(`[1]`):              "a guard has to be an object",
		handler(`[{"kind": 1}]`):    "kind is not a text: 1",
		handler(`[{"guard": "x"}]`): `guard "x": it has no kind`,
		handler(`[{"kind": "lock", "name": "user", "key": "global", "lease": "1ms"}]`):     "a lease of 1ms is too short",
		handler(`[{"kind": "idempotent", "guard": "o", "scope": "who", "key": "global"}]`): `guard "o", scope: "who" is no key`,
		app(``):                                  "latch: store: there is none",
		app(`"store": "{env.NO_SUCH_VARIABLE}"`): "latch: store: ",
		app(`"store": "memory", "seal": [""]`):   "latch: seal: key 1 is no base64 of 32 bytes",
	} {
		require.ErrorContains(t, validate(t, []byte(config)), want, config)
	}
}
