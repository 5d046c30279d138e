package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// document is the text of a file, and its mistakes.
type document struct {
	text     []byte
	findings []finding
}

// finding is a mistake, and its offset in the text.
type finding struct {
	at   int
	text string
}

// member is a name in an object of the file with its value.
type member struct {
	name    string
	at      int // offset of the name
	value   json.RawMessage
	valueAt int
}

func (d *document) report(at int, format string, args ...any) {
	d.findings = append(d.findings, finding{at, fmt.Sprintf(format, args...)})
}

// err joins the mistakes, in the order of the file.
func (d *document) err() error {
	slices.SortStableFunc(d.findings, func(a, b finding) int { return cmp.Compare(a.at, b.at) })
	errs := make([]error, len(d.findings))
	for i, f := range d.findings {
		errs[i] = d.located(f)
	}
	return errors.Join(errs...)
}

func (d *document) located(f finding) error {
	line, column := d.position(f.at)
	return fmt.Errorf("line %d, column %d: %s", line, column, f.text)
}

// position counts as editors do: from 1, in characters.
func (d *document) position(at int) (line, column int) {
	before := d.text[:at]
	begin := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[begin:]) + 1
}

// guards returns the members of the whole text, none if it cannot be read.
func (d *document) guards() []member {
	var whole json.RawMessage
	err := json.Unmarshal(d.text, &whole)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		// Its offset is behind the wrong character, if there is one.
		d.report(max(int(syntax.Offset)-1, 0), "this is no JSON: %v", syntax)
		return nil
	case err != nil:
		d.report(0, "this is no JSON: %v", err)
		return nil
	}
	return d.members(d.skip(0), `an object with a guard under each name, like {"submit-order": {"kind": "lock", ...}}`)
}

// members returns the members of the object at the offset, each name once. If there is no object,
// it reports a mistake that says what it wants.
func (d *document) members(at int, want string) []member {
	// The text is valid JSON, so the decoder cannot fail.
	dec := json.NewDecoder(bytes.NewReader(d.text[at:]))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		d.report(at, "this has to be %s", want)
		return nil
	}
	all := []member{} // not nil: it is an object
	for dec.More() {
		m := member{at: d.skip(at + int(dec.InputOffset()))}
		name, err := dec.Token()
		if err != nil {
			break
		}
		m.name, _ = name.(string)
		m.valueAt = d.skip(at + int(dec.InputOffset()))
		if err := dec.Decode(&m.value); err != nil {
			break
		}
		if first := slices.IndexFunc(all, func(o member) bool { return o.name == m.name }); first >= 0 {
			line, _ := d.position(all[first].at)
			d.report(m.at, "%q is there already, on line %d: remove one of them", m.name, line)
			continue
		}
		all = append(all, m)
	}
	return all
}

// skip returns the offset of the next name or value at or behind at.
func (d *document) skip(at int) int {
	rest := d.text[at:]
	return at + len(rest) - len(bytes.TrimLeft(rest, " \t\r\n,:"))
}
