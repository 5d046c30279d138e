package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/httplatch/httplatch/bench/internal/shop"
)

const preface = `# Results

All contenders of a row run in every round of ` + "`make bench`" + `, in random order. A cell with × is the median over the rounds of the row's figure divided by the
column's in the same round (the least and the most of these ratios); another is the column's own figure. How each contender is set up is in
[internal/peer](internal/peer) and [internal/web](internal/web): "httplatch" has the client and the time-outs of its peers, "defaults" no settings at all.
`

// Write writes all tables.
func (r *Run) Write(w io.Writer) error { return r.write(w, "", false) }

// Page writes RESULTS.md: the rows that most readers want. It is an error if one was not
// measured.
func (r *Run) Page(w io.Writer) error {
	if missing := r.missing(func(row row) bool { return row.page }); missing != nil {
		return fmt.Errorf("bench: no figures for %s", strings.Join(missing, "; "))
	}
	return r.write(w, preface+"\n", true)
}

// Missing returns the rows of a benchmark that has no figures for them.
func (r *Run) Missing(part string) []string {
	return r.missing(func(row row) bool { return row.of.part == part && row.of.who != shop.Idemlease })
}

func (r *Run) missing(wanted func(row row) bool) (titles []string) {
	for _, t := range tables() {
		c, ok := t.(compared)
		if !ok {
			continue
		}
		for _, row := range c.rows {
			if wanted(row) && r.figure(row.of).rounds == 0 {
				titles = append(titles, row.title)
			}
		}
	}
	return titles
}

func (r *Run) write(w io.Writer, before string, page bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n", before, strings.Join(r.machine, "; "))
	for _, t := range tables() {
		header, lines := t.lines(r, page)
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
		for _, line := range lines {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
