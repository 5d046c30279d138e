package forms_test

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

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testmain"
)

// library is a file of a package of the npm registry. The version and what the registry
// says of its bytes are fixed here; a newer one is taken by changing both.
type library struct{ name, version, integrity, file string }

var (
	htmx2 = library{
		"htmx.org", "2.0.11",
		"sha512-Thx/WtpeOQqSrqBCw/A1cwGJGg4UrVa3+sW0GmrM3p4gJgO89ecH4qtbnyzDDWFvBTqjnIMCgELTNt636dtamA==",
		"dist/htmx.min.js",
	}
	htmx4 = library{
		"htmx.org", "4.0.1",
		"sha512-oF7JgXhDW9UXCy/k1ZYFUQgzu/rm19ORWPSPNL91vPluB2PB9+MV55tyQdH/w7o2EAbTYUG5SDW1R60mdkdqGg==",
		"dist/htmx.min.js",
	}
	turbo8 = library{
		"@hotwired/turbo", "8.0.23",
		"sha512-GZ7cijxEZ6Ig71u7rD6LHaRv/wcE/hNsc+nEfiWOkLNqUgLOwo5MNGWOy5ZV9ZUDSiQx1no7YxjTNnT4O6//cQ==",
		"dist/turbo.es2017-umd.js",
	}
	axe4 = library{
		"axe-core", "4.14.1",
		"sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
		"axe.min.js",
	}
)

const noNPM = `no npm: this test needs libraries of the npm registry.
Install it (apt-get install npm, brew install node, dnf install npm), and let it reach its registry.`

// load returns the file. The package is downloaded once, into the user's cache; without npm,
// or without its registry, the test is skipped, and fails where CI=true.
func (l library) load(t *testing.T) []byte {
	t.Helper()
	content, err := l.cached()
	if err != nil {
		testmain.Unavailable(t, noNPM, err)
	}
	return content
}

var downloading sync.Mutex

func (l library) cached() ([]byte, error) {
	downloading.Lock()
	defer downloading.Unlock()
	dir, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	dir = filepath.Join(dir, "httplatch-tests")
	path := filepath.Join(dir, filepath.Base(l.name)+"-"+l.version+".tgz")
	packed, err := os.ReadFile(path)
	if err == nil && l.verify(packed) == nil {
		return unpack(packed, "package/"+l.file)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if packed, err = l.download(dir); err != nil {
		return nil, err
	}
	return unpack(packed, "package/"+l.file)
}

// download has npm fetch the package, and moves it to its place, where another process may
// have put it meanwhile.
func (l library) download(dir string) ([]byte, error) {
	into, err := os.MkdirTemp(dir, "download")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(into) }()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "pack", l.name+"@"+l.version, "--ignore-scripts", "--pack-destination", into)
	npm.Dir = into
	if output, err := npm.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm pack %s@%s: %w\n%s", l.name, l.version, err, output)
	}
	found, err := filepath.Glob(filepath.Join(into, "*.tgz"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("npm pack %s@%s made %q", l.name, l.version, found)
	}
	packed, err := os.ReadFile(found[0])
	if err != nil {
		return nil, err
	}
	if err := l.verify(packed); err != nil {
		return nil, err
	}
	return packed, os.Rename(found[0], filepath.Join(dir, filepath.Base(l.name)+"-"+l.version+".tgz"))
}

func (l library) verify(packed []byte) error {
	sum := sha512.Sum512(packed)
	if got := "sha512-" + base64.StdEncoding.EncodeToString(sum[:]); got != l.integrity {
		return fmt.Errorf("%s@%s is %s, not %s", l.name, l.version, got, l.integrity)
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

func TestAnotherPackageIsRefused(t *testing.T) {
	t.Parallel()
	packed := []byte("not what the registry has")
	require.ErrorContains(t, htmx2.verify(packed), htmx2.integrity)
	sum := sha512.Sum512(packed)
	require.NoError(t, library{integrity: "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}.verify(packed))
}
