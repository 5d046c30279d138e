package lockotel

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/httplatch/httplatch/lock"
)

// maxTexts bounds the distinguished policies, and the distinguished classes of errors.
const maxTexts = 64

// sets caches attribute sets, each made once.
type sets struct {
	mu       sync.RWMutex
	made     map[[5]string]metric.MeasurementOption
	policies map[string]bool
	classes  map[string]bool
	met      map[met]bool
}

// met is a policy and its use.
type met struct {
	policy string
	once   bool
}

func newSets() sets {
	return sets{
		made:     make(map[[5]string]metric.MeasurementOption),
		policies: make(map[string]bool),
		classes:  make(map[string]bool),
		met:      make(map[met]bool),
	}
}

// of returns the set of a policy and one more attribute, unless key is "".
func (s *sets) of(policy, key, value string) metric.MeasurementOption {
	policy = s.bounded(s.policies, policy)
	return s.get([5]string{policy, key, value}, func() []attribute.KeyValue {
		kvs := []attribute.KeyValue{attribute.String("policy", policy)}
		if key != "" {
			kvs = append(kvs, attribute.String(key, value))
		}
		return kvs
	})
}

// failure returns the set of a failed call to the store. class is a result of classOf.
func (s *sets) failure(call, outcome, class string) metric.MeasurementOption {
	return s.get([5]string{3: call + " " + outcome, 4: class}, func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("operation", call), attribute.String("outcome", outcome), attribute.String("error.type", class),
		}
	})
}

// classOf returns the class of err, or _OTHER if there are too many.
func (s *sets) classOf(err error) string { return s.bounded(s.classes, lock.Class(err)) }

// meets reports whether policy is new.
func (s *sets) meets(policy string, once bool) bool {
	m := met{s.bounded(s.policies, policy), once}
	s.mu.RLock()
	known := s.met[m]
	s.mu.RUnlock()
	if known {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known = s.met[m]
	s.met[m] = true
	return !known
}

// bounded returns text, or _OTHER if there are too many other texts.
func (s *sets) bounded(seen map[string]bool, text string) string {
	s.mu.RLock()
	known, n := seen[text], len(seen)
	s.mu.RUnlock()
	switch {
	case known:
		return text
	case n >= maxTexts:
		return other
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(seen) >= maxTexts && !seen[text] {
		return other
	}
	seen[text] = true
	return text
}

func (s *sets) get(key [5]string, kvs func() []attribute.KeyValue) metric.MeasurementOption {
	s.mu.RLock()
	set, ok := s.made[key]
	s.mu.RUnlock()
	if ok {
		return set
	}
	set = metric.WithAttributeSet(attribute.NewSet(kvs()...))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made[key] = set
	return set
}
