package walk

import (
	"archive/zip"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/httplatch/httplatch/internal/testkit/pgtest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

const (
	repository = "github.com/httplatch/httplatch"

	// version is the version under which this checkout can be fetched.
	version = "v0.1.0"
)

// required matches a requirement of a module of this repository.
var required = regexp.MustCompile(`(?m)(\b` + repository + `(?:/\S+)?) v\S+`)

// published are the directories of the modules that readers can fetch.
var published = []string{".", "lock/pgstore"}

var shared testmain.Shared[[]string]

// Main wraps m so that the shared resources of walks end when the tests have run.
func Main(m testmain.Runner) testmain.Runner { return pgtest.Main(shared.Main(m)) }

// environment returns the environment of a new user, whose module cache is empty before the first
// walk.
func environment(tb testing.TB) []string {
	tb.Helper()
	return shared.Get(tb, "walk: a walk needs a TestMain that uses walk.Main", func() (env []string, end func(), err error) {
		dir, err := os.MkdirTemp("", "walk") //nolint:usetesting // it outlives the test
		if err != nil {
			return nil, nil, err
		}
		end = func() { _ = os.RemoveAll(dir) }
		if env, err = serve(dir); err != nil {
			end()
			return nil, nil, err
		}
		return env, end, nil
	})
}

// serve lays out this checkout in dir as a module proxy does: "go get" then finds modules that
// are not published yet. Other modules come from the module cache of this machine, or from its
// proxy.
func serve(dir string) (env []string, err error) {
	out, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output() //nolint:noctx // it takes milliseconds
	if err != nil {
		return nil, err
	}
	here := strings.Split(string(out), "\n")
	root, err := checkout()
	if err != nil {
		return nil, err
	}
	downloaded := filepath.Join(here[0], "cache", "download")
	for _, m := range published {
		if err := layOut(filepath.Join(dir, "proxy"), root, m); err != nil {
			return nil, err
		}
	}
	return []string{
		"GOPROXY=" + fileURL(filepath.Join(dir, "proxy")) + "," + fileURL(downloaded) + "," + here[1],
		"GOSUMDB=off", // the checksum database does not know this version
		"GOMODCACHE=" + filepath.Join(dir, "mod"),
		"GOFLAGS=-modcacherw -trimpath -count=1 -ldflags=-w",
		"GOWORK=off",
	}, nil
}

// checkout returns the directory of this repository, which contains the directory of the test.
func checkout() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("walk: no go.work around the test")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

func fileURL(name string) string { return "file://" + filepath.ToSlash(name) }

// layOut writes the files of one module.
func layOut(proxy, root, module string) error {
	dir := filepath.Join(proxy, filepath.FromSlash(repository), filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	source := filepath.Join(root, filepath.FromSlash(module))
	gomod, err := os.ReadFile(filepath.Join(source, "go.mod")) //nolint:gosec // of this repository
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"list":            version + "\n",
		version + ".info": `{"Version":"` + version + `"}`,
		// In the workspace, the modules require each other in the version of the last release,
		// which the workspace replaces.
		version + ".mod": required.ReplaceAllString(string(gomod), "${1} "+version),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	out, err := os.Create(filepath.Join(dir, version+".zip")) //nolint:gosec // in our directory
	if err != nil {
		return err
	}
	archive := zip.NewWriter(out)
	err = pack(archive, path.Join(repository, module)+"@"+version, source)
	if err == nil {
		err = archive.Close()
	}
	if failure := out.Close(); err == nil {
		err = failure
	}
	return err
}

// pack adds the files of a module, without the files of modules below it.
func pack(archive *zip.Writer, as, source string) error {
	return fs.WalkDir(os.DirFS(source), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || isModule(filepath.Join(source, name))):
			return fs.SkipDir
		case d.IsDir() || !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(filepath.Join(source, name)) //nolint:gosec // of this repository
		if err != nil {
			return err
		}
		w, err := archive.Create(as + "/" + name)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}
