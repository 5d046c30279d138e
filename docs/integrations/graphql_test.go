package integrations_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/graph-gophers/graphql-go"
	"github.com/graph-gophers/graphql-go/relay"
	"github.com/stretchr/testify/require"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// guardMutations puts guard around the mutations that server executes. Queries pass.
func guardMutations(guard func(http.Handler) http.Handler, server http.Handler) http.Handler {
	one, several := guard(freeingKey(server)), guard(server)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "The body cannot be read.", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch fields, known := mutations(body); {
		case known && fields == 0:
			server.ServeHTTP(w, r)
		case known && fields == 1:
			one.ServeHTTP(w, r)
		default:
			several.ServeHTTP(w, r)
		}
	})
}

// mutations returns how many fields with an effect the request may execute. The number is not known
// for a request that it cannot read, such as a batch, or the hash of a stored document.
func mutations(body []byte) (fields int, known bool) {
	var request struct{ Query string }
	if err := json.Unmarshal(body, &request); err != nil {
		return 0, false
	}
	document, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: request.Query}, 20_000)
	if err != nil || len(document.Operations) == 0 {
		return 0, false
	}
	for _, operation := range document.Operations {
		if operation.Operation == ast.Query {
			continue
		}
		for _, selected := range operation.SelectionSet {
			if _, ok := selected.(*ast.Field); !ok {
				return 0, false // a fragment
			}
			fields++
		}
	}
	return fields, true
}

// freeingKey frees the key of a mutation that has failed: it has errors and no data.
func freeingKey(server http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		copied := &copyWriter{ResponseWriter: w}
		server.ServeHTTP(copied, r)
		var answer struct {
			Data   any
			Errors []any
		}
		if json.Unmarshal(copied.body.Bytes(), &answer) == nil && len(answer.Errors) > 0 && answer.Data == nil {
			latch.DoNotKeep(r.Context())
		}
	})
}

// copyWriter keeps a copy of the answer.
type copyWriter struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (w *copyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *copyWriter) Write(p []byte) (int, error) {
	w.body.Write(p)
	return w.ResponseWriter.Write(p)
}

func graphQLRoutes(locker *lock.Locker, schema *graphql.Schema) http.Handler {
	once := latch.Idempotent(locker, keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)

	mux := http.NewServeMux()
	mux.Handle("POST /graphql", guardMutations(once, &relay.Handler{Schema: schema}))
	return mux
}

// shop is a schema with an order, which may fail.
type shop struct {
	orders, queries, failures int
	commits                   bool // and the order fails after its effect
}

func (s *shop) Orders() int32 { s.queries++; return int32(s.orders) }

func (s *shop) Order(ctx context.Context, args struct{ Sku string }) (int32, error) {
	if s.failures > 0 {
		s.failures--
		return 0, errors.New("the database is away")
	}
	if args.Sku == "" {
		return 0, errors.New("no such article")
	}
	s.orders++
	if s.commits {
		return 0, errors.Join(lock.Commit(ctx), errors.New("the mail was not sent"))
	}
	return int32(s.orders), nil
}

func (s *shop) Note(struct{ Text string }) *int32 { return nil }

const shopSchema = `
	schema { query: Query mutation: Mutation }
	type Query { orders: Int! }
	type Mutation { order(sku: String!): Int! note(text: String!): Int }
`

// askGraphQL sends a document as clients of GraphQL do.
func askGraphQL(t *testing.T, h http.Handler, key string, request any) *httptest.ResponseRecorder {
	t.Helper()
	body, err := json.Marshal(request)
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodPost, "/graphql", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-User-ID", "42")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

type document struct {
	Query         string         `json:"query"`
	OperationName string         `json:"operationName,omitempty"`
	Variables     map[string]any `json:"variables,omitempty"`
}

func TestGraphQL(t *testing.T) {
	t.Parallel()
	order := document{Query: `mutation Buy($sku: String!) { order(sku: $sku) }`, OperationName: "Buy", Variables: map[string]any{"sku": "tea"}}
	start := func(t *testing.T) (*shop, http.Handler) {
		t.Helper()
		s := new(shop)
		return s, graphQLRoutes(newLocker(t, memstore.New()), graphql.MustParseSchema(shopSchema, s))
	}
	replayed := func(w *httptest.ResponseRecorder) bool { return w.Header().Get("Idempotent-Replayed") == "true" }

	t.Run("a query needs no key, and runs each time", func(t *testing.T) {
		t.Parallel()
		s, h := start(t)
		for _, key := range []string{"", "k", "k"} {
			for _, query := range []string{`{ orders }`, `query Q { ...F } fragment F on Query { orders }`, `# mutation { order }` + "\n{ orders }"} {
				w := askGraphQL(t, h, key, document{Query: query})
				require.JSONEq(t, `{"data":{"orders":0}}`, w.Body.String())
				require.False(t, replayed(w))
			}
		}
		require.Equal(t, 9, s.queries)
	})
	t.Run("a mutation needs one, and runs once", func(t *testing.T) {
		t.Parallel()
		s, h := start(t)
		w := askGraphQL(t, h, "", order)
		require.Equal(t, 400, w.Code)
		require.Contains(t, w.Body.String(), "key-missing")
		for i := range 3 {
			w := askGraphQL(t, h, "k", order)
			require.JSONEq(t, `{"data":{"order":1}}`, w.Body.String())
			require.Equal(t, i > 0, replayed(w))
		}
		other := order
		other.Variables = map[string]any{"sku": "mug"}
		require.Equal(t, 422, askGraphQL(t, h, "k", other).Code)
		require.Equal(t, 1, s.orders)
	})
	t.Run("a mutation that fails runs again", func(t *testing.T) {
		t.Parallel()
		s, h := start(t)
		s.failures = 2
		for i := range 4 {
			w := askGraphQL(t, h, "k", order)
			require.Equal(t, 200, w.Code)
			require.Equal(t, i < 2, strings.Contains(w.Body.String(), "the database is away"), w.Body)
			require.Equal(t, i == 3, replayed(w))
		}
		require.Equal(t, 1, s.orders)
	})
	t.Run("without the wrapper, its failure is the answer for a day", func(t *testing.T) {
		t.Parallel()
		s := &shop{failures: 1}
		once := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)
		h := once(&relay.Handler{Schema: graphql.MustParseSchema(shopSchema, s)})
		for range 2 {
			require.Contains(t, askGraphQL(t, h, "k", order).Body.String(), "the database is away")
		}
		require.Zero(t, s.orders)
		require.Equal(t, 400, askGraphQL(t, h, "", document{Query: `{ orders }`}).Code)
	})
	t.Run("one that fails after its effect does not run again", func(t *testing.T) {
		t.Parallel()
		s, h := start(t)
		s.commits = true
		require.Contains(t, askGraphQL(t, h, "k", order).Body.String(), "the mail was not sent")
		for range 2 {
			w := askGraphQL(t, h, "k", order)
			require.Equal(t, 409, w.Code)
			require.Contains(t, w.Body.String(), "result-not-replayable")
		}
		require.Equal(t, 1, s.orders)
	})
	t.Run("one that does not validate runs again", func(t *testing.T) {
		t.Parallel()
		s, h := start(t)
		for range 2 {
			w := askGraphQL(t, h, "k", document{Query: `mutation { order(article: "tea") }`})
			require.Contains(t, w.Body.String(), "errors")
			require.False(t, replayed(w))
		}
		require.Zero(t, s.orders)
	})
	t.Run("the first field of two has its effect once, although there is no data", func(t *testing.T) {
		t.Parallel()
		s, h := start(t)
		for i, query := range []string{
			`mutation { a: order(sku: "tea") b: order(sku: "") }`,
			`mutation { ...F } fragment F on Mutation { a: order(sku: "tea") b: order(sku: "") }`,
		} {
			for range 3 {
				w := askGraphQL(t, h, query[11:14], document{Query: query})
				require.Contains(t, w.Body.String(), "no such article")
				require.NotContains(t, w.Body.String(), `"a":`)
			}
			require.Equal(t, i+1, s.orders)
		}
	})
	t.Run("a part of the data is kept", func(t *testing.T) {
		t.Parallel()
		s, h := start(t)
		for i := range 2 {
			w := askGraphQL(t, h, "k", document{Query: `mutation { order(sku: "tea") note(text: "x") }`})
			require.JSONEq(t, `{"data":{"order":1,"note":null}}`, w.Body.String())
			require.Equal(t, i > 0, replayed(w))
		}
		require.Equal(t, 1, s.orders)
	})
	t.Run("what is not known to be a query needs a key", func(t *testing.T) {
		t.Parallel()
		s, h := start(t)
		for _, request := range []any{
			document{Query: `query Look { orders } mutation Buy { order(sku: "tea") }`, OperationName: "Buy"},
			document{Query: `query Look { orders } mutation Buy { order(sku: "tea") }`, OperationName: "Look"},
			document{Query: `subscription { orders }`},
			document{Query: `{ orders`},
			document{},
			[]document{{Query: `mutation { order(sku: "tea") }`}},
			map[string]any{"extensions": map[string]any{"persistedQuery": map[string]any{"version": 1, "sha256Hash": "ab"}}},
		} {
			require.Equal(t, 400, askGraphQL(t, h, "", request).Code, "%v", request)
		}
		require.Zero(t, s.orders)
	})
}
