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

	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/parallel"
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

func askGraphQL(t *testing.T, h http.Handler, key string, request any) *httptest.ResponseRecorder {
	t.Helper()
	r := guardtest.KeyedBody(key, string(must.Get(json.Marshal(request))(t)))
	r.URL.Path = "/graphql"
	return guardtest.Serve(h, r)
}

type document struct {
	Query         string         `json:"query"`
	OperationName string         `json:"operationName,omitempty"`
	Variables     map[string]any `json:"variables,omitempty"`
}

func startGraphQL(t *testing.T, s *shop) http.Handler {
	t.Helper()
	return graphQLRoutes(newLocker(t, memstore.New()), graphql.MustParseSchema(shopSchema, s))
}

var buyTea = document{Query: `mutation Buy($sku: String!) { order(sku: $sku) }`, OperationName: "Buy", Variables: map[string]any{"sku": "tea"}}

func TestGraphQLMutations(t *testing.T) {
	t.Parallel()
	mug := buyTea
	mug.Variables = map[string]any{"sku": "mug"}
	twoFields := document{Query: `mutation { a: order(sku: "tea") b: order(sku: "") }`}
	fragment := document{Query: `mutation { ...F } fragment F on Mutation { a: order(sku: "tea") b: order(sku: "") }`}
	noted := document{Query: `mutation { order(sku: "tea") note(text: "x") }`}
	const placed, away = `{"data":{"order":1}}`, "the database is away"
	type step struct {
		key      string
		request  document
		status   int
		says     string // in the answer, which has data only if this has
		replayed bool
	}
	for name, tt := range map[string]struct {
		shop  shop
		steps []step // in which there is one order
	}{
		"needs a key, and runs once": {shop{}, []step{
			{"", buyTea, 400, "key-missing", false}, {"k", buyTea, 200, placed, false}, {"k", buyTea, 200, placed, true}, {"k", mug, 422, "key-reused", false},
		}},
		"fails, and runs again": {shop{failures: 2}, []step{
			{"k", buyTea, 200, away, false}, {"k", buyTea, 200, away, false}, {"k", buyTea, 200, placed, false}, {"k", buyTea, 200, placed, true},
		}},
		"fails after its effect, and does not run again": {shop{commits: true}, []step{
			{"k", buyTea, 200, "the mail was not sent", false}, {"k", buyTea, 409, "result-not-replayable", false},
		}},
		"two fields, of which the first has its effect": {shop{}, []step{
			{"k", twoFields, 200, "no such article", false}, {"k", twoFields, 200, "no such article", true},
		}},
		"the same in a fragment": {shop{}, []step{
			{"k", fragment, 200, "no such article", false}, {"k", fragment, 200, "no such article", true},
		}},
		"a part of the data is kept": {shop{}, []step{
			{"k", noted, 200, `{"data":{"order":1,"note":null}}`, false}, {"k", noted, 200, `{"data":{"order":1,"note":null}}`, true},
		}},
	} {
		parallel.Run(t, name, func(t *testing.T) {
			s := tt.shop
			h := startGraphQL(t, &s)
			for _, step := range tt.steps {
				w := askGraphQL(t, h, step.key, step.request)
				require.Equal(t, step.status, w.Code)
				require.Contains(t, w.Body.String(), step.says)
				require.Equal(t, strings.HasPrefix(step.says, `{"data":`), strings.Contains(w.Body.String(), `"data":{`), w.Body)
				require.Equal(t, step.replayed, w.Header().Get("Idempotent-Replayed") == "true")
			}
			require.Equal(t, 1, s.orders)
		})
	}
}

// Without the wrapper, a failure is the answer for a day.
func TestGraphQLWithoutTheWrapper(t *testing.T) {
	t.Parallel()
	s := &shop{failures: 1}
	once := latch.Idempotent(newLocker(t, memstore.New()), keyfunc.Header("X-User-ID"), keyfunc.IdempotencyKey)
	h := once(&relay.Handler{Schema: graphql.MustParseSchema(shopSchema, s)})
	for range 2 {
		require.Contains(t, askGraphQL(t, h, "k", buyTea).Body.String(), "the database is away")
	}
	require.Zero(t, s.orders)
	require.Equal(t, 400, askGraphQL(t, h, "", document{Query: `{ orders }`}).Code)
}

// A query needs no key, and runs each time. A document that is not known to be a query needs one.
func TestGraphQLQueries(t *testing.T) {
	t.Parallel()
	s := new(shop)
	h := startGraphQL(t, s)
	for _, key := range []string{"", "k", "k"} {
		for _, query := range []string{`{ orders }`, `query Q { ...F } fragment F on Query { orders }`, `# mutation { order }` + "\n{ orders }"} {
			require.JSONEq(t, `{"data":{"orders":0}}`, askGraphQL(t, h, key, document{Query: query}).Body.String())
		}
	}
	require.Equal(t, 9, s.queries)
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
}
