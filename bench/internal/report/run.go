// Package report compares results of benchmarks in tables of Markdown.
package report

import (
	"cmp"
	"fmt"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"
)

// name identifies a figure.
type name struct{ part, kase, who, unit string }

// Run has all results of some files.
type Run struct {
	machine []string
	order   []name
	values  map[name]map[string]float64 // by round
}

// Load reads files in the Go benchmark format, which may be several runs one after the other:
// a round that was there before counts as another one. A path may be label=path; of several
// files, contenders are named after theirs too.
func Load(paths ...string) (*Run, error) {
	r := &Run{values: map[name]map[string]float64{}}
	files := benchfmt.Files{Paths: paths, AllowLabels: true}
	for files.Scan() {
		result, ok := files.Result().(*benchfmt.Result)
		if !ok {
			continue // a line of a log
		}
		label := ""
		if len(paths) > 1 {
			label = result.GetConfig(".file")
		}
		r.add(result, label)
	}
	if err := files.Err(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if len(r.order) == 0 {
		return nil, fmt.Errorf("bench: no results in %s", strings.Join(paths, ", "))
	}
	return r, nil
}

func (r *Run) add(result *benchfmt.Result, label string) {
	if r.machine == nil {
		for _, key := range []string{"machine", "cpu", "go", "server", "modules", "commit", "rounds"} {
			if text := result.GetConfig(key); text != "" {
				r.machine = append(r.machine, text)
			}
		}
	}
	base, parts := result.Name.Parts()
	fields := map[string]string{}
	for _, part := range parts {
		key, value, _ := strings.Cut(strings.TrimPrefix(string(part), "/"), "=")
		fields[key] = strings.NewReplacer("_", " ", ":", "/").Replace(value)
	}
	n := name{part: string(base), kase: fields["case"], who: fields["who"]}
	if label != "" {
		n.who += ", " + label
	}
	for _, v := range result.Values {
		n.unit = cmp.Or(v.OrigUnit, v.Unit)
		if r.values[n] == nil {
			r.order = append(r.order, n)
			r.values[n] = map[string]float64{}
		}
		round := fields["round"]
		for _, ok := r.values[n][round]; ok; _, ok = r.values[n][round] {
			round += ", again"
		}
		if r.values[n][round] = v.Value; v.OrigUnit != "" {
			r.values[n][round] = v.OrigValue
		}
	}
}

// spread is a median over rounds, with the least and the most of them.
type spread struct {
	median, least, most float64
	rounds              int
}

func newSpread(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	s := benchmath.NewSample(values, &benchmath.DefaultThresholds)
	return spread{benchmath.AssumeNothing.Summary(s, 0.95).Center, s.Values[0], s.Values[len(s.Values)-1], len(values)}
}

// figure is the spread of n.
func (r *Run) figure(n name) spread {
	var values []float64
	for _, v := range r.values[n] {
		values = append(values, v)
	}
	return newSpread(values)
}

// ratio is the spread of a over b, round by round: load on the machine that both had in
// a round is in neither. Rounds that only one of them has are left out.
func (r *Run) ratio(a, b name) spread {
	var ratios []float64
	for round, v := range r.values[a] {
		if other := r.values[b][round]; other != 0 {
			ratios = append(ratios, v/other)
		}
	}
	return newSpread(ratios)
}
