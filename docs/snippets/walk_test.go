package snippets_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/internal/testkit/walk"
)

// TestNewcomersWalk does what the tutorial says, from an empty directory: it writes its files and
// types its commands, and compares what they print.
func TestNewcomersWalk(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	walk.Follow(t, "../tutorial.md", nil)
}

// TestWalks does the same with the quick starts. One that needs a browser is followed where there
// is one: in the tests of example.
func TestWalks(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	for _, page := range walks(t) {
		if walk.Has(t, page, "browser") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			walk.Follow(t, page, nil)
		})
	}
}

func walks(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../walks/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all
}

// TestWalksHaveTheirOwnPorts: they are followed at the same time, and test binaries run at the same
// time too.
func TestWalksHaveTheirOwnPorts(t *testing.T) {
	t.Parallel()
	whose := map[string]string{}
	for _, page := range append(walks(t), "../tutorial.md") {
		for _, b := range walk.Blocks(t, page) {
			if b.Language == "sh" { // a server that the reader has
				continue
			}
			for _, port := range walk.Ports(b.Text) {
				require.Contains(t, []string{"", page}, whose[port], "%s:%d: localhost:%s", page, b.Line, port)
				whose[port] = page
			}
		}
	}
	require.Greater(t, len(whose), 1)
}

// TestReadmeInstalls: the command of the README fetches what its first program
// needs.
func TestReadmeInstalls(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	command := regexp.MustCompile("`(go get [^`]+)`").FindStringSubmatch(read(t, "../../README.md"))
	require.NotNil(t, command)
	program := walk.Blocks(t, "../../README.md")[0].Text + "\nfunc createOrder(http.ResponseWriter, *http.Request) {}\n"
	reader := walk.NewReader(t)
	reader.Write("main.go", program)
	for _, typed := range []string{"go mod init example.com/mine", command[1], "go build"} {
		printed, status := reader.Type(typed)
		require.Zero(t, status, "$ %s\n%s", typed, printed)
	}
}

// TestStepsInAnEmptyModule: the page has all that its chain needs, up to the services. Its first blocks, and a main that
// opens a store, are a program.
func TestStepsInAnEmptyModule(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "compiles programs")
	t.Parallel()
	program := `package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/httplatch/httplatch/client"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func main() {
	store, err := redisstore.Open(context.Background(), "redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	shop := newShop(lock.New(store), "http://localhost:9000", []byte(os.Getenv("KEY_SECRET")))
	log.Fatal(http.ListenAndServe("localhost:8080", shop))
}
`
	for _, b := range walk.Blocks(t, "../steps.md") {
		if strings.Contains(b.Text, "(s *shop)") || strings.Contains(b.Text, "type shop struct") {
			program += "\n" + b.Text
		}
	}
	reader := walk.NewReader(t)
	reader.Write("main.go", program)
	for _, typed := range []string{"go mod init example.com/lamps", "go get github.com/httplatch/httplatch", "go mod tidy", "go vet"} {
		printed, status := reader.Type(typed)
		require.Zero(t, status, "$ %s\n%s", typed, printed)
	}
}
