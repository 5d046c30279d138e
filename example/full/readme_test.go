package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// TestReadme compiles the programs of the README.
func TestReadme(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
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
	around, err := os.ReadFile("testdata/readme.go.txt")
	require.NoError(t, err)
	require.Contains(t, string(around), "\t// SNIPPET\n")
	compile(t, strings.Replace(string(around), "\t// SNIPPET\n", blocks[1], 1))
}

func compile(t *testing.T, program string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	out, err := exec.Command("go", "build", "-o", os.DevNull, file).CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, program)
}
