package console

import "slices"

// keyed is an entry, or a hold, of a key that may belong to a set.
type keyed interface{ set() []string }

// holder is one holder with all of its keys: a set has several.
type holder[T keyed] struct {
	First  T
	Others []T
}

func (e entry) set() []string {
	if e.Here == nil {
		return nil
	}
	return e.Here.Set
}

func (h hold) set() []string { return h.Set }

// Holders returns the entries by holder. Only this process knows which of its keys are a set, so keys
// of other processes are apart.
func (l *list) Holders() []holder[*entry] {
	all := make([]*entry, len(l.Entries))
	for i := range l.Entries {
		all[i] = &l.Entries[i]
	}
	return holders(all)
}

// Holders returns the holds by holder.
func (p activity) Holders() []holder[hold] { return holders(p.Holds) }

// holders keeps the order of all. A key has one holder, so a set is known by its keys.
func holders[T keyed](all []T) (grouped []holder[T]) {
	for _, one := range all {
		set := one.set()
		i := slices.IndexFunc(grouped, func(h holder[T]) bool { return len(set) > 0 && slices.Equal(h.First.set(), set) })
		if i >= 0 {
			grouped[i].Others = append(grouped[i].Others, one)
			continue
		}
		grouped = append(grouped, holder[T]{First: one})
	}
	return grouped
}

// keyLink is a key with a link to its entry.
type keyLink string

// Shown returns the key for display.
func (k keyLink) Shown() string { return visible(string(k)) }

// Link leads to the entry.
func (k keyLink) Link() string { return entryLink(string(k)) }

// Others returns the other keys of its set.
func (e *entry) Others() (others []keyLink) {
	for _, key := range e.set() {
		if key != e.Key {
			others = append(others, keyLink(key))
		}
	}
	return others
}
