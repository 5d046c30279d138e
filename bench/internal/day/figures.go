package day

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Record is the stored result of one day.
type Record struct {
	Name string
	TTL  time.Duration
	Rate float64 // times the incident's
	Seed uint64
	Outcome
}

// Append adds r to a file, as a line of JSON.
func (r Record) Append(file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // figures are to be read
	if err != nil {
		return err
	}
	r.Traces = nil
	return errors.Join(json.NewEncoder(f).Encode(r), f.Close())
}

// Load reads what was added to a file.
func Load(file string) (all []Record, err error) {
	text, err := os.ReadFile(file) //nolint:gosec // the developer's choice
	if err != nil {
		return nil, fmt.Errorf("there are no figures yet, run make day: %w", err)
	}
	for lines := json.NewDecoder(bytes.NewReader(text)); ; {
		var r Record
		switch err := lines.Decode(&r); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
}

// Short formats d without units that are zero at its end.
func Short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// WriteTables writes records as tables of Markdown: what customers met, a table for each number
// of orders and losses, and then what the days have cost. Rows are by contender and time to live.
func WriteTables(w io.Writer, all []Record) error {
	place := make(map[string]int)
	for i, c := range append(Contenders(), Twins()...) {
		place[c.Name] = i
	}
	all = slices.SortedStableFunc(slices.Values(all), func(a, b Record) int {
		return cmp.Or(cmp.Compare(a.Rate, b.Rate), cmp.Compare(b.Orders, a.Orders), cmp.Compare(place[a.Name], place[b.Name]), cmp.Compare(a.TTL, b.TTL))
	})
	text := new(bytes.Buffer)
	for i, r := range all {
		if i == 0 || r.Rate != all[i-1].Rate || r.Orders != all[i-1].Orders {
			fmt.Fprintf(text, "%s million orders, %g x losses:\n\n", millions(r), r.Rate)
			text.WriteString("| | time to live | locked out | minutes, in all | the longest | calls | placed twice |\n|---|---|---|---|---|---|---|\n")
		}
		fmt.Fprintf(text, "| %s | %v | %d | %.1f | %v | %d | %d |\n",
			r.Name, Short(r.TTL), r.LockedOut, r.Minutes, r.Longest.Round(time.Second), r.Calls, r.Doubled)
		if i == len(all)-1 || r.Rate != all[i+1].Rate || r.Orders != all[i+1].Orders {
			text.WriteString("\n")
		}
	}
	text.WriteString("The same days:\n\n")
	text.WriteString("| | time to live | millions of orders | lost | false answers | commands an order | wall time | heap |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range all {
		fmt.Fprintf(text, "| %s | %v | %s | %d | %d | %.2f | %v | %d MB |\n",
			r.Name, Short(r.TTL), millions(r), r.Lost, r.FalsePlaced+r.FalseFailed, r.Commands, r.Wall.Round(time.Second), r.Heap>>20)
	}
	_, err := text.WriteTo(w)
	return err
}

// WritePage writes the tables as a page, with what their columns mean.
func WritePage(w io.Writer, all []Record) error {
	const preface = "Written by `make day-page` from `bench/day.json`, to which `make day` adds:" + `

# Days of orders, in virtual time

- *locked out*: customers who were refused although no other request of theirs had been at a living desk for a second. The minutes count from then until a
  handler began. A customer *calls* after waiting for five minutes, and is *lost* after four hours.
- *placed twice*: the handler checks whether there is an order, works for 20 to 400 ms, and up to 4 s in one of 1,000, and writes the order.
- *false answers*: "not placed" for an order that was placed, and "placed" for one that was not.
- *losses*: 1 x is the incident's: one of a million requests to the server is lost, a minute late, or without an answer.
- Eight desks: one is killed eight times, one is paused eight times for up to twice the time to live and 30 s, all are deployed. The server stalls four times,
  restarts twice, and fails over once, to a replica without the last 200 ms. Round trips take 0.3 to 210 ms. One customer of 50 clicks twice.
- Each library acquires, calls the handler and releases, as its README shows: redislock without a retry, redsync with one try, rueidislock with its own client
  and one key a lock. *SET NX + EVALSHA* compares a token before it deletes. *The incident's policy* is SETNX and EXPIRE, and nothing after an error.

`
	if _, err := io.WriteString(w, preface); err != nil {
		return err
	}
	return WriteTables(w, all)
}

func millions(r Record) string {
	return strconv.FormatFloat(float64(r.Orders)/1e6, 'f', -1, 64)
}
