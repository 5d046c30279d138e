package console

import (
	"slices"

	"github.com/httplatch/httplatch/internal/keytext"
)

// spelling says whether the name in a free key may be misspelt.
type spelling struct {
	Fresh  bool     // this process has used no lock yet, so nothing is known
	Unseen string   // a name that is none of Names, "" if it is
	Names  []string // of the locks that this process has used
}

// spellingOf returns the spelling of a free key.
func (h *handler) spellingOf(key string) spelling {
	name := keytext.Name(key)
	used := h.locker.Snapshot(0, nil).Names
	switch {
	case name == "", slices.Contains(used, name):
		return spelling{}
	case len(used) == 0:
		return spelling{Fresh: true}
	}
	for i := range used {
		used[i] = visible(used[i])
	}
	return spelling{Unseen: visible(name), Names: used}
}
