package console

import (
	"log/slog"
	"net/http"
)

// Send sends data as the page called name, or as JSON, as the console does.
func Send(w http.ResponseWriter, r *http.Request, name string, data any) {
	(&answer{w: w, r: r, logger: slog.New(slog.DiscardHandler)}).send(http.StatusOK, name, data)
}
