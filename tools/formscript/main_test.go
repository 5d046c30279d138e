package main

import (
	"path/filepath"
	"testing"
)

// TestOneSource: the script for forms and the npm package have one logic of keys and repeats, and what
// package form serves is made of it.
func TestOneSource(t *testing.T) {
	if err := run("../../form", true); err != nil {
		t.Fatal(err)
	}
	for _, entry := range []string{"form/latch.js", "js/index.js"} {
		_, from, err := minified(filepath.Join("../..", entry))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"keys.js", "repeat.js"} {
			if !from[name] {
				t.Errorf("%s is made without %s", entry, name)
			}
		}
	}
}
