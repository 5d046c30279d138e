// Package npm gets files of packages of the npm registry for tests with a browser. Their versions
// and integrity values are fixed, and each package is downloaded once, into the user's cache.
//
// Without npm, or without its registry, tests are skipped with a reason; with CI=true they fail.
package npm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// Library is a file of a package. Integrity is the registry's SHA-512 of the package: a newer
// version is taken by changing both.
type Library struct{ Name, Version, Integrity, File string }

// What tests load into pages: libraries that send forms, and axe, which finds mistakes that keep
// people from using a page.
var (
	HTMX2 = Library{
		"htmx.org", "2.0.11",
		"sha512-Thx/WtpeOQqSrqBCw/A1cwGJGg4UrVa3+sW0GmrM3p4gJgO89ecH4qtbnyzDDWFvBTqjnIMCgELTNt636dtamA==",
		"dist/htmx.min.js",
	}
	HTMX4 = Library{
		"htmx.org", "4.0.1",
		"sha512-oF7JgXhDW9UXCy/k1ZYFUQgzu/rm19ORWPSPNL91vPluB2PB9+MV55tyQdH/w7o2EAbTYUG5SDW1R60mdkdqGg==",
		"dist/htmx.min.js",
	}
	Turbo8 = Library{
		"@hotwired/turbo", "8.0.23",
		"sha512-GZ7cijxEZ6Ig71u7rD6LHaRv/wcE/hNsc+nEfiWOkLNqUgLOwo5MNGWOy5ZV9ZUDSiQx1no7YxjTNnT4O6//cQ==",
		"dist/turbo.es2017-umd.js",
	}
	Axe = Library{
		"axe-core", "4.14.1",
		"sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
		"axe.min.js",
	}
)

// React has what a page of React is built from.
var React = []Library{
	{Name: "react", Version: "19.3.1", Integrity: "sha512-QNhWdt7nrgVWWQG58QuGsAR3jv3Hbe4mb4vz7w2csnHavciZJgda1CPNaldF6eVxv90ud3jUXpKlHL69gO38yw=="},
	{Name: "react-dom", Version: "19.3.1", Integrity: "sha512-Y0bARz53lhEC1NMCASs0/j+faB/zqt3R8hpvg1e8+61ZVJ4UL0UdC4cBbXfZMcIuhrfgeILTLe+ZeBCavQPtKQ=="},
	{Name: "scheduler", Version: "0.28.0", Integrity: "sha512-juorfCmIkIw8tT+p5BXSm6PJjQF/ycEYmKyzURCIt/RaZIhL+PulbQ9Yu2z1HdOJDdqDTlxA1+xKBmHXJsczAw=="},
}

// TypeScript is its compiler, and the types of React.
var TypeScript = []Library{
	{Name: "typescript", Version: "5.9.3", Integrity: "sha512-jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw=="},
	{Name: "@types/react", Version: "19.3.3", Integrity: "sha512-K8uWpJc4teiuOPdiP1umjeA9rGMgVPiXuoL66fcS1QlwBT1WMqY8PORmub9FadopIs+RCW6siYEs7Lpq+vDlog=="},
	{Name: "csstype", Version: "3.2.4", Integrity: "sha512-PoKaoPzQapnEoqUSnHx1u6W6ku8CVEgKsnpmmzU3m1nwkidpPBQ8V/Zq2+bWNrsOKoKLwTGdbx6xF7BXP1zLVQ=="},
}

const howToInstall = `no npm: this test needs libraries of the npm registry.
Install it (apt-get install npm, brew install node, dnf install npm), and let it reach its registry.`

// Load returns the file, or ends the test.
func (l Library) Load(tb testing.TB) []byte {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Quick, "needs a library of npm")
	var content []byte
	packed, err := l.cached()
	if err == nil {
		content, err = unpack(packed, "package/"+l.File)
	}
	if err != nil {
		testmain.Unavailable(tb, howToInstall, err)
	}
	return content
}

// Install puts whole packages into dir/node_modules, or ends the test.
func Install(tb testing.TB, dir string, packages ...Library) {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Quick, "needs libraries of npm")
	for _, l := range packages {
		packed, err := l.cached()
		if err == nil {
			err = unpackAll(packed, filepath.Join(dir, "node_modules", l.Name))
		}
		if err != nil {
			testmain.Unavailable(tb, howToInstall, err)
		}
	}
}

// InstallPacked has npm pack the package in the directory source, as it does for its registry, and puts
// it into dir/node_modules. It returns the names of its files, or ends the test.
func InstallPacked(tb testing.TB, dir, source, name string) (files []string) {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Quick, "needs npm")
	into := tb.TempDir()
	npm := exec.CommandContext(tb.Context(), "npm", "pack", "--ignore-scripts", "--pack-destination", into) //nolint:gosec // the directory of a test
	npm.Dir = source
	if output, err := npm.CombinedOutput(); err != nil {
		testmain.Unavailable(tb, howToInstall, fmt.Errorf("npm pack: %w\n%s", err, output))
	}
	made, err := filepath.Glob(filepath.Join(into, "*.tgz"))
	if err != nil || len(made) != 1 {
		tb.Fatalf("npm pack made %q", made)
	}
	packed, err := os.ReadFile(made[0])
	if err != nil {
		tb.Fatal(err)
	}
	into = filepath.Join(dir, "node_modules", name)
	if err := unpackAll(packed, into); err != nil {
		tb.Fatal(err)
	}
	entries, err := os.ReadDir(into)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		files = append(files, e.Name())
	}
	return files
}

var downloading sync.Mutex

// cached returns the package, which it downloads unless the cache has it.
func (l Library) cached() ([]byte, error) {
	downloading.Lock()
	defer downloading.Unlock()
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "httplatch-tests")
	packed, err := os.ReadFile(filepath.Join(dir, l.cacheName())) //nolint:gosec // a name of this package, in the user's cache
	if err == nil && l.verify(packed) == nil {
		return packed, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	return l.download(dir)
}

// cacheName tells @types/react from react.
func (l Library) cacheName() string {
	return strings.ReplaceAll(strings.TrimPrefix(l.Name, "@"), "/", "-") + "-" + l.Version + ".tgz"
}

// download has npm fetch the package, and moves it to its place, where another process may
// have put it meanwhile.
func (l Library) download(dir string) ([]byte, error) {
	into, err := os.MkdirTemp(dir, "download")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(into) }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "pack", l.Name+"@"+l.Version, "--ignore-scripts", "--pack-destination", into) //nolint:gosec // of this package
	npm.Dir = into
	if output, err := npm.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm pack %s@%s: %w\n%s", l.Name, l.Version, err, output)
	}
	found, err := filepath.Glob(filepath.Join(into, "*.tgz"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("npm pack %s@%s made %q", l.Name, l.Version, found)
	}
	packed, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	if err := l.verify(packed); err != nil {
		return nil, err
	}
	return packed, os.Rename(found[0], filepath.Join(dir, l.cacheName()))
}

func (l Library) verify(packed []byte) error {
	sum := sha512.Sum512(packed)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != l.Integrity {
		return fmt.Errorf("%s@%s is %s, not %s", l.Name, l.Version, got, l.Integrity)
	}
	return nil
}

func unpack(packed []byte, name string) (content []byte, err error) {
	err = each(packed, func(file string, from io.Reader) error {
		if file == name {
			content, err = io.ReadAll(from)
		}
		return err
	})
	if err == nil && content == nil {
		err = fmt.Errorf("%s is not in the package", name)
	}
	return content, err
}

// unpackAll writes the files of a package into dir, without the directory in which a package has them.
func unpackAll(packed []byte, dir string) error {
	return each(packed, func(file string, from io.Reader) error {
		_, file, _ = strings.Cut(file, "/")
		file, err := filepath.Localize(file)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil { //nolint:gosec // Localize has checked it
			return err
		}
		content, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		return os.WriteFile(path, content, 0o600) //nolint:gosec // the same
	})
}

func each(packed []byte, do func(file string, from io.Reader) error) error {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && h.Typeflag == tar.TypeReg {
			err = do(h.Name, files)
		}
		if err != nil {
			return err
		}
	}
}
