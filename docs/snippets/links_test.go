package snippets_test

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
)

// Links to these are links to files of this repository.
const (
	repository = "https://github.com/httplatch/httplatch/"
	packages   = "https://pkg.go.dev/github.com/httplatch/httplatch"
)

// TestLinksLead: every link in a page of the repository leads to a file that is there, and to a
// heading that it has. Links to elsewhere are at least well-formed.
func TestLinksLead(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../..")
	all := pagesIn(t, root)
	for _, page := range []string{"README.md", "CHANGELOG.md", "docs/README.md", "docs/payments.md", "docs/comparison.md", "bench/RESULTS.md"} {
		require.Contains(t, all, page)
	}
	require.Empty(t, brokenLinks(t, root, all))
}

func pagesIn(t *testing.T, root fs.FS) []string {
	t.Helper()
	var all []string
	require.NoError(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules"):
			return fs.SkipDir
		case strings.HasSuffix(base, ".md"):
			all = append(all, name)
		}
		return nil
	}))
	return all
}

func brokenLinks(t *testing.T, root fs.FS, all []string) (broken []string) {
	t.Helper()
	tree := linked{FS: root, anchors: map[string][]string{}}
	for _, page := range all {
		for _, link := range linksOf(string(must.Get(fs.ReadFile(root, page))(t))) {
			target, inside := inRepository(link)
			if inside && !tree.leads(page, target) || !inside && !wellFormed(link) {
				broken = append(broken, page+": "+link)
			}
		}
	}
	return broken
}

// inRepository returns a link as one from the page, or from "/", the root of the repository.
func inRepository(link string) (target string, inside bool) {
	for _, kind := range []string{"blob/main", "tree/main"} {
		if file, ok := strings.CutPrefix(link, repository+kind); ok {
			return file, true
		}
	}
	if pkg, ok := strings.CutPrefix(link, packages); ok {
		return "/" + strings.TrimPrefix(pkg, "/"), true
	}
	return link, !strings.Contains(link, ":")
}

// linked is a tree of files, with the anchors of those that were looked at.
type linked struct {
	fs.FS

	anchors map[string][]string
}

func (l linked) leads(page, target string) bool {
	name, anchor, _ := strings.Cut(target, "#")
	file := page
	switch {
	case strings.HasPrefix(name, "/"):
		file = path.Join(".", name[1:])
	case name != "":
		file = path.Join(path.Dir(page), name)
	}
	info, err := fs.Stat(l, file)
	switch {
	case err != nil:
		return false
	case anchor == "":
		return target != "" && !strings.HasSuffix(target, "#")
	case info.IsDir():
		return l.declares(file, anchor)
	}
	if _, known := l.anchors[file]; !known && strings.HasSuffix(file, ".md") {
		text, _ := fs.ReadFile(l, file)
		l.anchors[file] = anchorsOf(string(text))
	}
	return slices.Contains(l.anchors[file], anchor)
}

// declares reports whether a package has this name, such as Locker or Locker.Do.
func (l linked) declares(dir, name string) bool {
	files, _ := fs.Glob(l, path.Join(dir, "*.go"))
	declaration := `(?m)^((func|type|var|const) |\t)` + name + `\b`
	if of, method, ok := strings.Cut(name, "."); ok {
		declaration = `(?m)^func \(\w+ \*?` + of + `\) ` + method + `\(`
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, _ := fs.ReadFile(l, file)
		return regexp.MustCompile(declaration).Match(text)
	})
}

// wellFormed is about links to other machines, which are not visited.
func wellFormed(link string) bool {
	u, err := url.Parse(link)
	if err != nil || u.User != nil {
		return false
	}
	if u.Hostname() == "localhost" {
		return u.Scheme == "http"
	}
	return u.Scheme == "https" && strings.Contains(strings.Trim(u.Hostname(), "."), ".")
}

var (
	inline     = regexp.MustCompile("`[^`\n]*`")
	inlineLink = regexp.MustCompile(`\]\(\s*<?([^)>\s]*)>?(?:\s+"[^"]*")?\s*\)`)
	definition = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s+<?([^>\s]+)`)
	autolink   = regexp.MustCompile(`<([a-z]+://[^>\s]+)>`)
	inHTML     = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	heading    = regexp.MustCompile(`(?m)^ {0,3}#{1,6} +(.*?)[ #]*$`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// linksOf are the targets of the links of a page, outside of code.
func linksOf(text string) (links []string) {
	text = inline.ReplaceAllString(withoutBlocks(text), "code")
	for _, form := range []*regexp.Regexp{inlineLink, definition, autolink, inHTML} {
		for _, m := range form.FindAllStringSubmatch(text, -1) {
			links = append(links, m[1])
		}
	}
	return links
}

// anchorsOf are the names by which the headings of a page can be linked to, as GitHub makes
// them.
func anchorsOf(text string) (anchors []string) {
	seen := map[string]int{}
	for _, m := range heading.FindAllStringSubmatch(withoutBlocks(text), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, linkText.ReplaceAllString(m[1], "$1"))
		anchors = append(anchors, name)
		if n := seen[name]; n > 0 {
			anchors[len(anchors)-1] += "-" + string(rune('0'+n))
		}
		seen[name]++
	}
	return anchors
}

func withoutBlocks(text string) string {
	var b strings.Builder
	inBlock := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inBlock = !inBlock
		} else if !inBlock {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestBrokenLinksAreFound is the twin of TestLinksLead: the same check, over pages whose links
// lead nowhere.
func TestBrokenLinksAreFound(t *testing.T) {
	t.Parallel()
	pages := fstest.MapFS{
		"docs/there.md":  {Data: []byte("# `lock.Commit`, and when\n## Twice\n## Twice\n```\n# no heading\n```\n")},
		"lock/store.go":  {Data: []byte("package lock\n\ntype Store struct{}\n\nfunc (s *Store) Get() {}\n\nconst (\n\tHeld = 1\n)\n")},
		".hidden/bad.md": {Data: []byte("[x](nowhere.md)")},
	}
	for link, leads := range map[string]bool{
		"[a](there.md)":                                        true,
		"[a](there.md#lockcommit-and-when)":                    true,
		"[a](there.md#twice-1)":                                true,
		"[a](../lock/store.go)":                                true,
		"[a](#here)":                                           true,
		"[a](https://example.com/b#c)":                         true,
		"[a](http://localhost:8080/)":                          true,
		"[a](" + repository + "blob/main/docs/there.md#twice)": true,
		"[a](" + packages + "/lock#Store)":                     true,
		"[a](" + packages + "/lock#Store.Get)":                 true,
		"[a](" + packages + "/lock#Held)":                      true,
		"`[a](in-code.md)`":                                    true,
		"[a](gone.md)":                                         false,
		"[a](there.md#gone)":                                   false,
		"[a](there.md#no-heading)":                             false,
		"[a](there.md#)":                                       false,
		"[a](../lock/store.go#L3)":                             false,
		"[a](#gone)":                                           false,
		"[a]()":                                                false,
		"[a][b]\n\n[b]: gone.md":                               false,
		`<a href="gone.html">a</a>`:                            false,
		"[a](http://example.com)":                              false,
		"[a](https:/example.com)":                              false,
		"[a](https://example)":                                 false,
		"[a](https://user@example.com)":                        false,
		"<ftp://example.com>":                                  false,
		"[a](" + repository + "blob/main/gone.md)":             false,
		"[a](" + packages + "/lock#Gone)":                      false,
		"[a](" + packages + "/lock#Stor)":                      false,
		"[a](" + packages + "/lock#Store.Put)":                 false,
	} {
		pages["docs/page.md"] = &fstest.MapFile{Data: []byte("# Here\n\n" + link + "\n")}
		require.Equal(t, leads, len(brokenLinks(t, pages, pagesIn(t, pages))) == 0, link)
	}
}
