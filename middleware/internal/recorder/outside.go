package recorder

import (
	"net/http"
	"reflect"
	"strings"
)

// AnsweredOutside reports whether a request whose handler has written nothing is answered outside
// of the guard: code outside has written to w, or to a writer that w wraps, or w belongs to a
// framework that answers later for its handlers. status is 200 unless it is known.
func AnsweredOutside(w http.ResponseWriter) (status int, outside bool) {
	for {
		switch t := w.(type) {
		case *Answer: // of a guard further out
			if t.Status != 0 {
				return t.Status, true
			}
		case *StatusWriter:
			if t.Code != 0 {
				return t.Code, true
			}
		case ginWriter:
			return t.Status(), true
		case interface { // negroni
			Status() int
			Written() bool
		}:
			if t.Written() {
				return t.Status(), true
			}
		case interface { // chi
			Status() int
			BytesWritten() int
		}:
			if t.Status() != 0 {
				return t.Status(), true
			}
		default:
			switch {
			case IsOfFiber(t):
				return http.StatusOK, true
			case isOfEcho(t):
				if status := reflect.Indirect(reflect.ValueOf(t)).FieldByName("Status"); status.CanInt() && status.Int() != 0 {
					return int(status.Int()), true
				}
				return http.StatusOK, true
			}
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return http.StatusOK, false
		}
		w = wrapper.Unwrap()
	}
}

// ginWriter is a writer of gin, which sends a status after all middleware has returned.
type ginWriter interface {
	Status() int
	WriteHeaderNow()
}

// isOfEcho reports whether w is an echo.Response, whose state is in fields.
func isOfEcho(w http.ResponseWriter) bool {
	t := reflect.TypeOf(w)
	return t.String() == "*echo.Response" && strings.HasPrefix(t.Elem().PkgPath(), "github.com/labstack/echo/")
}

// IsOfFiber reports whether w is a writer of fiber's adaptor, whose handlers run after the
// guard has returned.
func IsOfFiber(w http.ResponseWriter) bool {
	return reflect.TypeOf(w).String() == "*fasthttpadaptor.writer"
}
