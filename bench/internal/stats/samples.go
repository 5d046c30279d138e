package stats

import (
	"encoding/json"
	"slices"
)

// Name says what was measured.
type Name struct {
	Part   string `json:"part"`   // "cycles"
	Case   string `json:"case"`   // "256 callers"
	Who    string `json:"who"`    // "bsm/redislock"
	Metric string `json:"metric"` // "per second"
}

// Samples are all figures of a run, one for each round. The zero value has
// none. It is not safe for concurrent use: two measurements at once would be
// wrong anyway.
type Samples struct {
	order  []Name
	values map[Name][]float64
}

// Add adds the figure of the next round.
func (s *Samples) Add(name Name, value float64) {
	if s.values == nil {
		s.values = map[Name][]float64{}
	}
	if _, ok := s.values[name]; !ok {
		s.order = append(s.order, name)
	}
	s.values[name] = append(s.values[name], value)
}

// AddAll adds the rounds of others. Their contenders are called what rename makes
// of their names.
func (s *Samples) AddAll(others *Samples, rename func(who string) string) {
	for _, name := range others.order {
		renamed := name
		renamed.Who = rename(name.Who)
		for _, value := range others.values[name] {
			s.Add(renamed, value)
		}
	}
}

// Arrange puts the names in the order of compare, which Cases, Whos and the file
// of the samples then have. Those that are equal keep theirs.
func (s *Samples) Arrange(compare func(a, b Name) int) { slices.SortStableFunc(s.order, compare) }

// Of returns the figures of name, by round.
func (s *Samples) Of(name Name) []float64 { return s.values[name] }

// Cases and Whos are those that part has metric of, in the order in which they
// came.
func (s *Samples) Cases(part, metric string) []string {
	return s.distinct(part, metric, func(n Name) string { return n.Case })
}

// Whos is described at Cases.
func (s *Samples) Whos(part, metric string) []string {
	return s.distinct(part, metric, func(n Name) string { return n.Who })
}

func (s *Samples) distinct(part, metric string, of func(Name) string) []string {
	var found []string
	for _, n := range s.order {
		if n.Part == part && n.Metric == metric && !slices.Contains(found, of(n)) {
			found = append(found, of(n))
		}
	}
	return found
}

type sample struct {
	Name
	Values []float64 `json:"values"`
}

// MarshalJSON keeps the order.
func (s *Samples) MarshalJSON() ([]byte, error) {
	all := make([]sample, len(s.order))
	for i, name := range s.order {
		all[i] = sample{name, s.values[name]}
	}
	return json.Marshal(all)
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (s *Samples) UnmarshalJSON(text []byte) error {
	var all []sample
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	*s = Samples{}
	for _, one := range all {
		for _, v := range one.Values {
			s.Add(one.Name, v)
		}
	}
	return nil
}
