package middleware_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	latch "github.com/httplatch/httplatch/middleware"
)

var updateOpenAPI = flag.Bool("update-openapi", false, "write docs/openapi.yaml again")

const openAPIPage = "../docs/openapi.yaml"

// TestOpenAPI: docs/openapi.yaml has each refusal of the table in docs/problems.md, which
// TestProblemTypesAreDescribed compares with the guards.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	want := openAPI(t)
	if *updateOpenAPI {
		require.NoError(t, os.WriteFile(openAPIPage, []byte(want), 0o644))
	}
	got, err := os.ReadFile(openAPIPage)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "write it again with: go test ./middleware -run TestOpenAPI -update-openapi")
}

func openAPI(t *testing.T) string {
	t.Helper()
	problems, err := os.ReadFile("../docs/problems.md")
	require.NoError(t, err)
	kinds := make(map[int][]latch.ProblemKind)
	var statuses []int
	number := regexp.MustCompile(`\d{3}`)
	for _, row := range regexp.MustCompile("(?m)^\\| \\[`([a-z-]+)`\\].*?\\| ([^|]*) \\|").FindAllStringSubmatch(string(problems), -1) {
		for _, status := range number.FindAllString(row[2], -1) {
			n, err := strconv.Atoi(status)
			require.NoError(t, err)
			if kinds[n] == nil {
				statuses = append(statuses, n)
			}
			kinds[n] = append(kinds[n], latch.ProblemKind(row[1]))
		}
	}
	require.Len(t, statuses, 10)
	slices.Sort(statuses)
	text := `# What guarded routes refuse, for the components of an OpenAPI document (3.0 and 3.1). A test writes this
# file from the table in problems.md. List for an operation the statuses that its guards can have.
components:
  parameters:
    IdempotencyKey:
      name: Idempotency-Key
      in: header
      required: true
      description: One key for one submission. Each repeat of it sends the same key and the same content.
      schema: {type: string, minLength: 1, maxLength: 257}
  headers:
    IdempotentReplayed:
      description: This answer was given before. After "not-kept", the next request with the key runs.
      schema: {type: string, enum: ["true", "not-kept"]}
    LatchProblem:
      description: The refusal comes from a guard, and is of this kind.
      schema: {type: string}
    RetryAfter:
      description: Seconds after which to send the same request again.
      schema: {type: integer, minimum: 1}
  schemas:
    Refusal:
      type: object
      required: [type, title, status]
      properties:
        type: {type: string, format: uri}
        title: {type: string, description: A fixed sentence for each type.}
        detail: {type: string}
        status: {type: integer}
  responses:
`
	for _, status := range statuses {
		text += fmt.Sprintf("    Refused%d:\n      description: |-\n", status)
		types := make([]string, len(kinds[status]))
		for i, k := range kinds[status] {
			text += fmt.Sprintf("        %s: %s\n", k, k.Problem().Title)
			types[i] = k.Problem().Type
		}
		text += "      headers:\n        Latch-Problem: {$ref: \"#/components/headers/LatchProblem\"}\n"
		again := func(k latch.ProblemKind) bool { return k.Problem().RetryAfter > 0 }
		if slices.ContainsFunc(kinds[status], again) && status != http.StatusInternalServerError {
			text += "        Retry-After: {$ref: \"#/components/headers/RetryAfter\"}\n"
		}
		text += "      content:\n        application/problem+json:\n          schema:\n            allOf:\n" +
			"              - {$ref: \"#/components/schemas/Refusal\"}\n              - type: object\n                properties:\n" +
			"                  type:\n                    enum:\n                      - " + strings.Join(types, "\n                      - ") + "\n"
	}
	return text
}
