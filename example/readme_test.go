package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadme compiles the programs of the README.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	var blocks []string
	for rest := string(text); ; {
		_, after, found := strings.Cut(rest, "```go\n")
		if !found {
			break
		}
		block, next, found := strings.Cut(after, "```")
		require.True(t, found)
		blocks, rest = append(blocks, block), next
	}
	require.Len(t, blocks, 2)

	compile(t, blocks[0]+"\nfunc createOrder(http.ResponseWriter, *http.Request) {}\n")
	compile(t, `package main

import (
	"context"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func main() {}

var auth struct {
	UserID  func(context.Context) string
	Require func(http.Handler) http.Handler
}

func createOrder(http.ResponseWriter, *http.Request) {}

func setUp(r chi.Router, client *redis.Client) {
`+blocks[1]+"}\n")
}

func compile(t *testing.T, program string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	out, err := exec.Command("go", "build", "-o", os.DevNull, file).CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, program)
}
