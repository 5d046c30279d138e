package js_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/example/full/internal/browser/npm"
	"github.com/httplatch/httplatch/internal/testkit/guardtest"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

func TestNode(t *testing.T) {
	t.Parallel()
	testmain.SkipIn(t, testmain.Quick, "starts node")
	node := exec.CommandContext(t.Context(), "node", "--test", "test/")
	if node.Err != nil {
		testmain.Unavailable(t, "no node: that the npm package keeps its promises is not shown. Install it (apt-get install nodejs).", node.Err)
	}
	node.Dir = source
	output, err := node.CombinedOutput()
	require.NoError(t, err, string(output))
}

// The types of what the page of the test does, and mistakes that they find.
const typed = `
import { latchedFetch } from "httplatch";
import { useSubmit, type Submission } from "httplatch/react";
const answer: Response = await latchedFetch(new URL("https://shop.example"), { method: "PUT", place: "gift", signal: AbortSignal.timeout(1) });
// @ts-expect-error
await latchedFetch("/", { place: 7 });
export function useTea(): Submission {
	const s = useSubmit("/orders", { place: "tea" });
	// @ts-expect-error: the body is that of submit
	useSubmit("/orders", { body: "tea" });
	void s.submit(new FormData()).then((a) => a?.ok);
	// @ts-expect-error
	s.answer.ok;
	return s;
}
`

// TestTypes: the compiler finds no mistake in the code of README.md, nor in typed.
func TestTypes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	npm.InstallPacked(t, dir, source, "httplatch")
	npm.Install(t, dir, npm.TypeScript...)
	files := map[string]string{"typed.ts": typed, "package.json": `{"type":"module"}`}
	readme := must.Get(os.ReadFile(filepath.Join(source, "README.md")))(t)
	blocks := regexp.MustCompile("(?s)```(js|jsx)\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, blocks, 2)
	for _, b := range blocks {
		files["readme."+strings.Replace(b[1], "js", "ts", 1)] = strings.ReplaceAll(b[2], "order = (e)", "order = (e: FormEvent)")
	}
	files["readme.tsx"] = `import type { FormEvent } from "react";` + files["readme.tsx"]
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	tsc := exec.CommandContext(t.Context(), "node", "node_modules/typescript/lib/tsc.js", "--noEmit", "--strict", "--noUncheckedSideEffectImports",
		"--jsx", "react-jsx", "--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022", "--lib", "dom,dom.iterable,es2022", "--types", "react",
		"typed.ts", "readme.ts", "readme.tsx")
	tsc.Dir = dir
	output, err := tsc.CombinedOutput()
	require.NoError(t, err, string(output))
}

// TestPacked: the package has what it needs, and no tests.
func TestPacked(t *testing.T) {
	t.Parallel()
	files := npm.InstallPacked(t, t.TempDir(), source, "httplatch")
	require.ElementsMatch(t, []string{
		"LICENSE", "README.md", "package.json",
		"index.js", "index.d.ts", "react.js", "react.d.ts", "keys.js", "repeat.js",
	}, files)
	theirs := must.Get(os.ReadFile(filepath.Join(source, "LICENSE")))(t)
	ours := must.Get(os.ReadFile("../../../../LICENSE"))(t)
	require.Equal(t, string(ours), string(theirs))
}

// TestStatusesThatEndAKey are those that the guard keeps: after any other, the same key runs again.
func TestStatusesThatEndAKey(t *testing.T) {
	t.Parallel()
	testmain.SkipIn(t, testmain.Quick, "starts node")
	node := exec.CommandContext(t.Context(), "node", "--input-type=module", "-e", `
		import { ends } from "./repeat.js";
		const all = [];
		for (let status = 200; status < 600; status++) if (ends(status)) all.push(status);
		console.log(JSON.stringify(all));`)
	if node.Err != nil {
		testmain.Unavailable(t, "no node: apt-get install nodejs", node.Err)
	}
	node.Dir = source
	output := must.Get(node.Output())(t)
	var ends []int
	require.NoError(t, json.Unmarshal(output, &ends))

	var kept []int
	once := latch.Idempotent(lock.New(memstore.New()), keyfunc.Global, keyfunc.IdempotencyKey)
	for status := 200; status < 600; status++ {
		runs := 0
		h := once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { runs++; w.WriteHeader(status) }))
		for range 2 {
			guardtest.Serve(h, guardtest.Keyed(strconv.Itoa(status)))
		}
		if runs == 1 {
			kept = append(kept, status)
		}
	}
	require.Equal(t, kept, ends)
}
