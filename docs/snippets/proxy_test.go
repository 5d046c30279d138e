package snippets_test

import (
	"archive/zip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// published is the version under which this checkout can be fetched from
// serveModule.
const published = "v0.1.0"

// serveModule lays out this checkout as a module proxy does, and returns the
// file URL of it: "go get" then finds a module that is not published yet.
func serveModule(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "github.com", "httplatch", "httplatch", "@v")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	gomod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	for name, text := range map[string]string{
		"list":              published + "\n",
		published + ".info": `{"Version":"` + published + `"}`,
		published + ".mod":  string(gomod),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}

	out, err := os.Create(filepath.Join(dir, published+".zip"))
	require.NoError(t, err)
	defer out.Close()
	archive := zip.NewWriter(out)
	require.NoError(t, fs.WalkDir(os.DirFS("../.."), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || isModule(path)):
			return fs.SkipDir
		case d.IsDir() || !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			return err
		}
		w, err := archive.Create("github.com/httplatch/httplatch@" + published + "/" + path)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}))
	require.NoError(t, archive.Close())
	return "file://" + filepath.ToSlash(root)
}

// isModule: a directory with a go.mod is no part of the module around it.
func isModule(path string) bool {
	_, err := os.Stat(filepath.Join("../..", path, "go.mod"))
	return err == nil
}
