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

const howToInstall = `no npm: this test needs libraries of the npm registry.
Install it (apt-get install npm, brew install node, dnf install npm), and let it reach its registry.`

// Load returns the file, or ends the test.
func (l Library) Load(tb testing.TB) []byte {
	tb.Helper()
	testmain.SkipIn(tb, testmain.Quick, "needs a library of npm")
	content, err := l.cached()
	if err != nil {
		testmain.Unavailable(tb, howToInstall, err)
	}
	return content
}

var downloading sync.Mutex

func (l Library) cached() ([]byte, error) {
	downloading.Lock()
	defer downloading.Unlock()
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "httplatch-tests")
	path := filepath.Join(dir, filepath.Base(l.Name)+"-"+l.Version+".tgz")
	packed, err := os.ReadFile(path) //nolint:gosec // a name of this package, in the user's cache
	if err == nil && l.verify(packed) == nil {
		return unpack(packed, "package/"+l.File)
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	if packed, err = l.download(dir); err != nil {
		return nil, err
	}
	return unpack(packed, "package/"+l.File)
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
	return packed, os.Rename(found[0], filepath.Join(dir, filepath.Base(l.Name)+"-"+l.Version+".tgz"))
}

func (l Library) verify(packed []byte) error {
	sum := sha512.Sum512(packed)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != l.Integrity {
		return fmt.Errorf("%s@%s is %s, not %s", l.Name, l.Version, got, l.Integrity)
	}
	return nil
}

func unpack(packed []byte, name string) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	for files := tar.NewReader(z); ; {
		switch h, err := files.Next(); {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%s is not in the package", name)
		case err != nil:
			return nil, err
		case h.Name == name:
			return io.ReadAll(files)
		}
	}
}
