package record

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
			status = t.Status
		case *StatusWriter:
			status = t.Code
		case ginWriter:
			return t.Status(), true
		case interface { // negroni
			Status() int
			Written() bool
		}:
			if t.Written() {
				status = t.Status()
			}
		case interface { // chi
			Status() int
			BytesWritten() int
		}:
			status = t.Status()
		default:
			kind := reflect.TypeOf(t)
			switch {
			case IsOfFiber(t):
				return http.StatusOK, true
			case kind.String() == "*echo.Response" && strings.HasPrefix(kind.Elem().PkgPath(), "github.com/labstack/echo/"): // its state is in fields
				if code := reflect.Indirect(reflect.ValueOf(t)).FieldByName("Status"); code.CanInt() && code.Int() != 0 {
					return int(code.Int()), true
				}
				return http.StatusOK, true
			}
		}
		if status != 0 {
			return status, true
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

// IsOfFiber reports whether w is a writer of fiber's adaptor, whose handlers run after the
// guard has returned.
func IsOfFiber(w http.ResponseWriter) bool {
	return reflect.TypeOf(w).String() == "*fasthttpadaptor.writer"
}
