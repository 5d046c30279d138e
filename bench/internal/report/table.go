package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// table is a part of the report. Lines that were not measured are left out.
type table interface {
	lines(r *Run, page bool) (header []string, lines [][]string)
}

// compared has rows of a figure each, and of contenders that it is compared with.
type compared struct {
	title, figure string   // heads of the first two columns
	columns       []string // contenders
	rows          []row
}

// row compares a figure with the contenders in the table's columns.
type row struct {
	title      string
	of         name
	cells      cells
	base       string   // case of ownRatios
	against    []string // contenders in place of the columns'
	budgets    []budget
	page       bool // in RESULTS.md, too
	omitIfZero bool // for all contenders
}

// cells is the kind of a row's cells.
type cells int

const (
	ratios    cells = iota // the row's figure over each contender's, in the same round
	figures                // each contender's figure
	ownRatios              // each contender's figure over its own in the case base
)

func (c compared) lines(r *Run, page bool) (header []string, lines [][]string) {
	header = append([]string{c.title, c.figure}, c.columns...)
	for _, row := range c.rows {
		value := r.figure(row.of)
		if value.rounds == 0 || page && !row.page || row.omitIfZero && !r.some(row.of) {
			continue
		}
		line := []string{row.title, figure(value.median)}
		against := row.against
		if against == nil {
			against = c.columns
		}
		if row.cells == ownRatios {
			line[1] = r.own(row, row.of.who).times()
		}
		for i := range c.columns {
			cell := ""
			if i < len(against) && against[i] != row.of.who {
				cell = r.cell(row, against[i])
			}
			line = append(line, cell)
		}
		var verdicts []string
		for _, b := range row.budgets {
			verdicts = append(verdicts, b.verdict(r, row)...)
		}
		lines = append(lines, append(line, strings.Join(verdicts, ", ")))
	}
	return append(header, "budget"), lines
}

func (r *Run) cell(w row, who string) string {
	other := w.of
	other.who = who
	switch w.cells {
	case figures:
		if s := r.figure(other); s.rounds > 0 {
			return figure(s.median)
		}
	case ownRatios:
		return r.own(w, who).times()
	case ratios:
		return r.ratio(w.of, other).times()
	}
	return ""
}

// some reports whether a contender has a figure other than 0.
func (r *Run) some(of name) bool {
	for _, n := range r.order {
		who := of
		who.who = n.who
		if n == who && r.figure(n).most > 0 {
			return true
		}
	}
	return false
}

func (r *Run) own(w row, who string) spread {
	of := w.of
	of.who = who
	base := of
	base.kase = w.base
	return r.ratio(of, base)
}

// wide has a line for each contender in a case, and a column for each unit.
type wide struct {
	part    string
	units   []string
	budgets map[string]budget // by unit
	over    []string          // cases with budgets; nil: all
}

func (w wide) lines(r *Run, page bool) (header []string, lines [][]string) {
	var subjects []name
	var cases []string
	for _, n := range r.order {
		n.unit = ""
		if n.part == w.part && !slices.Contains(subjects, n) {
			subjects, cases = append(subjects, n), append(cases, n.kase)
		}
	}
	if page {
		return nil, nil
	}
	slices.SortStableFunc(subjects, func(a, b name) int { // contenders ran in random order
		return cmp.Or(cmp.Compare(slices.Index(cases, a.kase), slices.Index(cases, b.kase)), strings.Compare(b.who, a.who))
	})
	header = append([]string{w.part, ""}, w.units...)
	for _, n := range subjects {
		line, verdicts := []string{n.kase, n.who}, []string(nil)
		for _, n.unit = range w.units {
			s := r.figure(n)
			if s.rounds == 0 {
				line = append(line, "")
				continue
			}
			line = append(line, figure(s.median))
			if b, ok := w.budgets[n.unit]; ok && (w.over == nil || slices.Contains(w.over, n.kase)) {
				verdicts = append(verdicts, n.unit+" "+b.text(s))
			}
		}
		lines = append(lines, append(line, strings.Join(verdicts, ", ")))
	}
	return append(header, "budget"), lines
}

// budget bounds a figure or, with against or own, a ratio.
type budget struct {
	least, most float64 // bounds; 0 and +Inf: none
	against     []string
	own         bool
}

func atLeast(bound float64, against ...string) budget {
	return budget{bound, math.Inf(1), against, false}
}
func atMost(bound float64, against ...string) budget { return budget{0, bound, against, false} }

// ofOwn bounds the ratio to the contender's own figure in the base case.
func (b budget) ofOwn() budget {
	b.own = true
	return b
}

func (b budget) text(s spread) string {
	bound, verdict := "≥ "+figure(b.least), "held"
	if b.least == 0 {
		bound = "≤ " + figure(b.most)
	}
	if s.median < b.least || s.median > b.most {
		verdict = "missed"
	}
	return bound + " " + verdict
}

// verdict says of each bound whether it holds.
func (b budget) verdict(r *Run, w row) (verdicts []string) {
	switch {
	case b.own:
		return []string{b.text(r.own(w, w.of.who))}
	case b.against == nil:
		return []string{b.text(r.figure(w.of))}
	}
	for _, who := range b.against {
		other := w.of
		other.who = who
		if s := r.ratio(w.of, other); s.rounds > 0 {
			verdicts = append(verdicts, who+" "+b.text(s))
		}
	}
	return verdicts
}

// times writes a ratio.
func (s spread) times() string {
	switch s.rounds {
	case 0:
		return ""
	case 1:
		return figure(s.median) + "×"
	}
	return fmt.Sprintf("%s× (%s–%s)", figure(s.median), figure(s.least), figure(s.most))
}

// figure has three significant digits, and separates thousands.
func figure(v float64) string {
	switch magnitude := math.Abs(v); {
	case magnitude >= 1000:
		text := fmt.Sprintf("%.0f", v)
		for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	case magnitude >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case magnitude >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
