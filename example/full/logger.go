package main

import (
	"io"
	"log/slog"
)

// newLogger writes lines to w. A line of the Locker about a record links to the record, in the
// console at the address console.
func newLogger(w io.Writer, console string) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == "console" {
				a.Value = slog.StringValue(console + a.Value.String())
			}
			return a
		},
	}))
}
